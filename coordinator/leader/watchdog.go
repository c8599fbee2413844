package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/internal/timescale"
)

const (
	// stallTimeout is how long the applied index may stay the same while
	// proposals are pending.
	stallTimeout = 2 * time.Second
	// stallCheckInterval is how often the applied index is checked.
	stallCheckInterval = 100 * time.Millisecond
	// establishTimeout is how long a leader may take from the start of its
	// duties until it serves.
	establishTimeout = 3 * time.Second
)

// ErrStalled is why a term fails whose leader applies nothing while proposals
// are pending.
var ErrStalled = errors.New("leader: no progress while proposals are pending")

// ErrNotEstablished is why a term fails whose leader doesn't serve in time.
var ErrNotEstablished = errors.New("leader: duties not started")

// Watchdog is a duty that fails the term if the leader can't do its work: the
// applied index doesn't move for two seconds while proposals are pending, or
// the leader doesn't serve within three seconds.
//
// It counts checks instead of time. If the whole process was paused, the clock
// has moved and nothing could have been applied: that counts as one check, not
// as a stall.
type Watchdog struct {
	// Progress returns the applied index, and whether proposals are pending. It
	// must not block.
	Progress func() (applied uint64, pending bool)
	// Established reports whether the leader serves. nil: it always does. It
	// must not block.
	Established func() bool
	// ScanTime returns the additional time that the leader may take until it
	// serves, because of the size of the state that it scans. nil: none.
	ScanTime func() time.Duration
	// TimeScale scales all limits. For simulations only.
	TimeScale timescale.Factor
}

// Name implements Duty.
func (Watchdog) Name() string { return "watchdog" }

// Run implements Duty.
func (w Watchdog) Run(ctx context.Context, _ uint64) error {
	ticker := time.NewTicker(w.TimeScale.Scale(stallCheckInterval))
	defer ticker.Stop()
	last, _ := w.Progress()
	limit := establishTimeout
	if w.ScanTime != nil {
		limit += w.ScanTime()
	}
	stalled, waited := 0, 0 // consecutive checks without progress, checks until it serves
	established := w.Established == nil
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if established = established || w.Established(); !established {
			if waited++; waited >= int(limit/stallCheckInterval) {
				return fmt.Errorf("%w within %v", ErrNotEstablished, limit)
			}
		}
		applied, pending := w.Progress()
		if !pending || applied != last {
			last, stalled = applied, 0
			continue
		}
		if stalled++; stalled >= int(stallTimeout/stallCheckInterval) {
			return fmt.Errorf("%w: at index %d for %v", ErrStalled, applied, stallTimeout)
		}
	}
}
