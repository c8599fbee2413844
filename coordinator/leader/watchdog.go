package leader

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// stallLimit is how long the applied index may stand still while proposals
	// wait for their answer.
	stallLimit = 2 * time.Second
	stallCheck = 100 * time.Millisecond
)

// ErrStalled is why a term fails whose leader does not get anything applied.
var ErrStalled = errors.New("leader: nothing is applied while proposals wait")

// Watchdog is a duty that fails the term when the leader cannot take up its work: the
// applied index does not move for two seconds although proposals wait.
//
// It counts its own looks, not the time between them. When the whole process was
// stopped for a while, the clock has moved and nothing could have been applied;
// that is one look, not a stall.
type Watchdog struct {
	// Progress returns the applied index, and whether proposals wait for their
	// answer. It must not block.
	Progress func() (applied uint64, pending bool)
}

// Name implements Duty.
func (Watchdog) Name() string { return "watchdog" }

// Run implements Duty.
func (w Watchdog) Run(ctx context.Context, _ uint64) error {
	ticker := time.NewTicker(stallCheck)
	defer ticker.Stop()
	last, _ := w.Progress()
	still := 0 // looks in a row that saw proposals waiting and no progress
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		applied, pending := w.Progress()
		if !pending || applied != last {
			last, still = applied, 0
			continue
		}
		if still++; still >= int(stallLimit/stallCheck) {
			return fmt.Errorf("%w: at index %d for %v", ErrStalled, applied, stallLimit)
		}
	}
}
