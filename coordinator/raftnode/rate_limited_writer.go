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

// A snapshot is written beside the log, mostly to the same disk. Written as fast as
// it can be, and synced in one piece at its end, it stands in the way of every sync of
// the log for as long as that takes. It goes there steadily instead, and is synced
// on the way. What a leader sends to a replica that is behind does not wait: there is
// no log to be written beside it.
const (
	snapshotRate  = 40 << 20 // bytes a second
	snapshotPiece = 2 << 20  // bytes between two syncs
)

// steadyWriter writes a file in pieces, each synced and in its time.
type steadyWriter struct {
	io.Writer

	file    synced // that is written
	limit   *rate.Limiter
	closing <-chan struct{}
	unsaved int // bytes since the last sync
}

type synced interface {
	Sync() error
	Close() error
}

func newSteadyWriter(to io.Writer, file synced, closing <-chan struct{}) *steadyWriter {
	return &steadyWriter{Writer: to, file: file, closing: closing, limit: rate.NewLimiter(snapshotRate, snapshotPiece)}
}

// Write implements io.Writer. It fails with ErrClosed once the node is closing.
func (w *steadyWriter) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		var n int
		n, err = w.Writer.Write(p[written:min(len(p), written+snapshotPiece-w.unsaved)])
		written += n
		w.unsaved += n
		if err == nil && w.unsaved == snapshotPiece {
			err = w.piece()
		}
	}
	return written, err //nolint:wrapcheck // the caller says what it wrote
}

// piece ends a piece: what is written now is on the disk when it returns.
func (w *steadyWriter) piece() error {
	select {
	case <-w.closing: // asked by itself: below, a pause that is over as well may be chosen
		return ErrClosed
	default:
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	now := time.Now()
	pause := w.limit.ReserveN(now, w.unsaved).DelayFrom(now)
	w.unsaved = 0
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.closing:
		return ErrClosed
	}
}

// Close implements io.Closer. What is not synced yet is synced by whoever closes the sink.
func (w *steadyWriter) Close() error { return w.file.Close() }

// steadily gives the writer for the state of a snapshot.
func (n *Node) steadily(sink raft.SnapshotSink) (io.WriteCloser, error) {
	file, err := os.OpenFile(filepath.Join(n.cfg.DataDir, snapshotsDir, sink.ID()+tmpSuffix, stateName), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the snapshot that is written: %w", err)
	}
	// The sink holds some KiB that it has not written: they go with the next piece.
	return newSteadyWriter(sink, file, n.closing), nil
}
