package raftnode

import (
	"errors"
	"io"
)

// behindQueue is how many blocks may wait to be written.
const behindQueue = 4

// writeBehind writes on a goroutine of its own, which Close ends: the state is encoded while
// the part before it gets its checksums and is written. Not safe for concurrent use.
type writeBehind struct {
	to     io.WriteCloser
	blocks chan []byte   // to the goroutine; size behindQueue; closed by Close
	free   chan []byte   // blocks that were written; size behindQueue+2: all of them
	failed chan struct{} // closed by the goroutine after an error
	done   chan error    // size 1: the result of the goroutine
}

func newWriteBehind(to io.WriteCloser) *writeBehind {
	w := &writeBehind{
		to: to, blocks: make(chan []byte, behindQueue), free: make(chan []byte, behindQueue+2),
		failed: make(chan struct{}), done: make(chan error, 1),
	}
	go w.run()
	return w
}

func (w *writeBehind) run() {
	for b := range w.blocks {
		if _, err := w.to.Write(b); err != nil {
			close(w.failed)
			w.done <- err
			return
		}
		w.free <- b // it has space for all blocks
	}
	w.done <- nil
}

// errBehind is returned after an error, which Close returns.
var errBehind = errors.New("writing has failed")

// Write implements io.Writer. It copies what is written.
func (w *writeBehind) Write(b []byte) (int, error) {
	var block []byte
	select {
	case block = <-w.free:
	default:
	}
	select {
	case w.blocks <- append(block[:0], b...):
		return len(b), nil
	case <-w.failed:
		return 0, errBehind
	}
}

// Close waits until everything is written, and closes the writer. It returns the first error.
func (w *writeBehind) Close() error {
	close(w.blocks)
	return errors.Join(<-w.done, w.to.Close())
}
