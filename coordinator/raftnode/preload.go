package raftnode

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Preloaded is the newest snapshot of a data directory, read into a state that is not
// in use yet. Reading a large state takes seconds, and a starting replica also waits
// for others: so it is read before it is known whether the directory may be used.
type Preloaded struct {
	done chan struct{} // closed after the following fields are set
	id   string        // of the snapshot
	took time.Duration

	state restoredState // use is nil if there is no snapshot or it is unreadable: raft reports why
}

// Preload starts to read the newest snapshot of the data directory dir, which nothing
// else may change meanwhile. It changes nothing. Reading stops early when ctx is done.
func Preload(ctx context.Context, dir string, fsm FSM) *Preloaded {
	p := &Preloaded{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer func() {
			if recover() != nil { // raft reads it again, which panics and is handled there
				p.state = restoredState{}
			}
		}()
		p.read(ctx, dir, fsm)
	}()
	return p
}

// Wait returns when the directory is no longer being read.
func (p *Preloaded) Wait() { <-p.done }

func (p *Preloaded) read(ctx context.Context, dir string, fsm FSM) {
	start := time.Now()
	names, err := snapshotNames(dir)
	if err != nil || len(names) == 0 {
		return
	}
	p.id = slices.MaxFunc(names, compareSnapshots)
	file, err := os.Open(filepath.Join(dir, snapshotsDir, p.id, stateName)) //nolint:gosec // a name in the data directory
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }() // read only
	if state, err := readState(fsm, contextReader{ctx, file}); err == nil {
		p.state, p.took = state, time.Since(start)
	}
}

// contextReader is a reader that ends with a context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // Read has none
	io.Reader
}

// Read implements io.Reader.
func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// usePreloaded puts the preloaded state into use if it is that of the snapshot that
// raft starts with. Otherwise raft restores a snapshot itself.
func (n *Node) usePreloaded(snapshots raft.SnapshotStore) bool {
	p := n.cfg.Preloaded
	if p == nil {
		return false
	}
	p.Wait()
	list, err := snapshots.List()
	if err != nil || len(list) == 0 || p.state.use == nil || list[0].ID != p.id {
		return false
	}
	n.fsm.use(p.state)
	p.state = restoredState{} // releases the state
	n.log.Info("restored from snapshot", "id", p.id, "last_index", list[0].Index, "last_term", list[0].Term, "size_in_bytes", list[0].Size, "took", p.took)
	return true
}
