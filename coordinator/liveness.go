package coordinator

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// work counts what the state machine does, so that a call that never returns differs from
// one that is not made.
type work struct {
	running atomic.Int64  // calls that have not returned
	steps   atomic.Uint64 // entries that were applied, and blocks of snapshots that were read
}

// begin counts a call; the caller must call end when it returns.
func (w *work) begin() { w.running.Add(1) }

func (w *work) end() {
	w.steps.Add(1)
	w.running.Add(-1)
}

// reader counts the blocks that are read of a snapshot: restoring a large one takes
// longer than a watchdog waits.
func (w *work) reader(r io.Reader) io.Reader { return &workReader{r, w} }

type workReader struct {
	io.Reader

	work *work
}

// Read implements io.Reader.
func (r *workReader) Read(p []byte) (int, error) {
	r.work.steps.Add(1)
	return r.Reader.Read(p)
}

// progress returns a number that grows with what this replica does, and whether it has
// anything to do. It blocks while the state can't be read.
func (r *replica) progress() (steps uint64, busy bool) {
	r.machine.Index()
	steps, busy = r.work.steps.Load(), r.work.running.Load() > 0
	if node := r.node.Load(); node != nil {
		// A leader without a majority loses its proposals with its term, within a second.
		_, pending := node.Progress()
		busy = busy || pending
	}
	return steps, busy
}

// reportAlive calls alive each interval in which there was progress, or nothing to do. It
// doesn't while progress blocks, or always returns the same with something to do.
func reportAlive(ctx context.Context, interval time.Duration, progress func() (steps uint64, busy bool), alive func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last, _ := progress()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		steps, busy := progress()
		if !busy || steps != last {
			alive()
		}
		last = steps
	}
}
