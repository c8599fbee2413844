package raftnode

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/time/rate"
)

// A snapshot is written while the log is, mostly to the same disk. Written at full
// speed, and synced once at its end, it delays every sync of the log meanwhile. So it
// is written at a limited rate and synced on the way. A snapshot received from the
// leader is not limited: no log is written beside it.
const (
	snapshotRate  = 40 << 20 // bytes per second
	snapshotBurst = 2 << 20  // bytes between two syncs
)

// rateLimitedWriter writes a file in bursts, each followed by a sync and a pause.
type rateLimitedWriter struct {
	io.Writer

	file     syncCloser // the file that Writer writes
	limit    *rate.Limiter
	closing  <-chan struct{}
	unsynced int // bytes since the last sync
}

type syncCloser interface {
	Sync() error
	Close() error
}

func newRateLimitedWriter(to io.Writer, file syncCloser, closing <-chan struct{}) *rateLimitedWriter {
	return &rateLimitedWriter{Writer: to, file: file, closing: closing, limit: rate.NewLimiter(snapshotRate, snapshotBurst)}
}

// limitSnapshotRate returns the writer for the state of a snapshot.
func (n *Node) limitSnapshotRate(sink raft.SnapshotSink) (io.WriteCloser, error) {
	file, err := openState(n.cfg.DataDir, sink)
	if err != nil {
		return nil, err
	}
	// The sink buffers some KiB; they are synced with the next burst.
	return newRateLimitedWriter(sink, file, n.closing), nil
}

// openState opens the file that a sink writes, to sync it.
func openState(dir string, sink raft.SnapshotSink) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, snapshotsDir, sink.ID()+tmpSuffix, stateName), os.O_WRONLY, 0) //nolint:gosec // in the data directory
	if err != nil {
		return nil, fmt.Errorf("opening snapshot file: %w", err)
	}
	return file, nil
}

// Write implements io.Writer. It fails with ErrClosed once the node closes.
func (w *rateLimitedWriter) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		var n int
		n, err = w.Writer.Write(p[written:min(len(p), written+snapshotBurst-w.unsynced)])
		written += n
		w.unsynced += n
		if err == nil && w.unsynced == snapshotBurst {
			err = w.endBurst()
		}
	}
	return written, err //nolint:wrapcheck // the caller names what it writes
}

// endBurst syncs what is written and pauses.
func (w *rateLimitedWriter) endBurst() error {
	select {
	case <-w.closing: // checked alone: the select below may choose an expired timer instead
		return ErrClosed
	default:
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	now := time.Now()
	pause := w.limit.ReserveN(now, w.unsynced).DelayFrom(now)
	w.unsynced = 0
	select {
	case <-time.After(pause):
		return nil
	case <-w.closing:
		return ErrClosed
	}
}

// Close implements io.Closer. Closing the sink syncs the rest.
func (w *rateLimitedWriter) Close() error { return w.file.Close() }
