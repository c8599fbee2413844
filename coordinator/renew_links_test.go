package coordinator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
)

// countingLog counts the log lines with a message.
type countingLog struct {
	message string
	lines   *atomic.Int32
}

// Enabled implements slog.Handler.
func (c countingLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (c countingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.message {
		c.lines.Add(1)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (c countingLog) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c countingLog) WithGroup(string) slog.Handler { return c }

// The old CA is dropped when the replicas have replaced their connections. If it ended those,
// commits would wait until all are open again.
func TestTheConnectionsOfReplicasDoNotNeedTheOldCAWhenItIsDropped(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	c := newYearCluster(t, time.Now())
	c.log = countingLog{message: "closed connections with certificates of a dropped CA", lines: &closed}
	c.start(t.Context())
	// The replicas take three seconds at most: on a loaded machine, some connections may be left.
	for range 5 {
		before := closed.Load()
		c.rotate(false)
		c.rotate(true)
		if closed.Load() == before {
			return
		}
	}
	t.Errorf("in each of 5 rotations, replicas had connections that needed the old CA: %d", closed.Load())
}
