package raftnode

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Prepared is the newest snapshot of a data folder on its way into a state that is not
// in use yet. Reading it takes a while with a large state, and a replica that begins has to wait
// for others as well: so it is read before it is known whether the folder may be used.
type Prepared struct {
	done chan struct{} // closed when what follows is set
	id   string        // of the snapshot
	took time.Duration

	state readyState // take is nil if there is none, or it cannot be read: raft says then why
}

// Prepare begins to read the newest snapshot of the data folder dir, which nothing else
// may change meanwhile. Nothing in it is changed. The reading ends early when ctx is done.
func Prepare(ctx context.Context, dir string, fsm FSM) *Prepared {
	p := &Prepared{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer func() {
			if recover() != nil { // the same comes again when raft reads it, and is handled there
				p.state = readyState{}
			}
		}()
		p.read(ctx, dir, fsm)
	}()
	return p
}

// Wait returns when the folder is not read any more.
func (p *Prepared) Wait() { <-p.done }

func (p *Prepared) read(ctx context.Context, dir string, fsm FSM) {
	began := time.Now()
	names, err := snapshotNames(dir)
	if err != nil || len(names) == 0 {
		return
	}
	p.id = newestOf(names)
	file, err := os.Open(filepath.Join(dir, snapshotsDir, p.id, stateName)) //nolint:gosec // a name in our own folder
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }() // it was read only
	if state, err := readState(fsm, untilDone{ctx, file}); err == nil {
		p.state, p.took = state, time.Since(began)
	}
}

// newestOf is the one that raft would try first.
func newestOf(names []string) string {
	return slices.MaxFunc(names, func(a, b string) int {
		var x, y struct{ term, index, at uint64 }
		_, _ = fmt.Sscanf(a, "%d-%d-%d", &x.term, &x.index, &x.at) // what is no snapshot is not the newest
		_, _ = fmt.Sscanf(b, "%d-%d-%d", &y.term, &y.index, &y.at)
		return cmp.Or(cmp.Compare(x.term, y.term), cmp.Compare(x.index, y.index), cmp.Compare(x.at, y.at))
	})
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context //nolint:containedctx // Read has none
	io.Reader
}

// Read implements io.Reader.
func (r untilDone) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// takePrepared puts the state that was prepared into use, if it is that of the snapshot that raft
// begins with. Otherwise raft restores a snapshot itself.
func (n *Node) takePrepared(snapshots raft.SnapshotStore) (taken bool) {
	p := n.cfg.Prepared
	if p == nil {
		return false
	}
	p.Wait()
	list, err := snapshots.List()
	if err != nil || len(list) == 0 || p.state.take == nil || list[0].ID != p.id {
		return false
	}
	n.fsm.take(p.state)
	p.state = readyState{} // which holds on to the state
	n.log.Info("restored from snapshot", "id", p.id, "last_index", list[0].Index, "last_term", list[0].Term, "size_in_bytes", list[0].Size, "took", p.took)
	return true
}
