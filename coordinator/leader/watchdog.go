package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/internal/timescale"
)

const (
	// stallLimit is how long the applied index may stand still while proposals
	// wait for their answer.
	stallLimit = 2 * time.Second
	stallCheck = 100 * time.Millisecond
	// establishLimit is how long a leader may take from the beginning of its duties
	// until it serves.
	establishLimit = 3 * time.Second
)

// ErrStalled is why a term fails whose leader does not get anything applied.
var ErrStalled = errors.New("leader: nothing is applied while proposals wait")

// ErrNotEstablished is why a term fails whose leader does not get as far as serving.
var ErrNotEstablished = errors.New("leader: the duties are not taken up")

// Watchdog is a duty that fails the term when the leader cannot take up its work: the
// applied index does not move for two seconds although proposals wait, or within
// three seconds it does not begin to serve.
//
// It counts its own looks, not the time between them. When the whole process was
// stopped for a while, the clock has moved and nothing could have been applied;
// that is one look, not a stall.
type Watchdog struct {
	// Progress returns the applied index, and whether proposals wait for their
	// answer. It must not block.
	Progress func() (applied uint64, pending bool)
	// Established returns whether the leader serves. Optional; it must not block.
	Established func() bool
	// Scan returns what the leader may take in addition, because of the size of
	// the state that it has to look through. Optional.
	Scan func() time.Duration
	// TimeScale scales its limits. For simulations only.
	TimeScale timescale.Factor
}

// Name implements Duty.
func (Watchdog) Name() string { return "watchdog" }

// Run implements Duty.
func (w Watchdog) Run(ctx context.Context, _ uint64) error {
	ticker := time.NewTicker(w.TimeScale.Scale(stallCheck))
	defer ticker.Stop()
	last, _ := w.Progress()
	still := 0 // looks in a row that saw proposals waiting and no progress
	limit := establishLimit
	if w.Scan != nil {
		limit += w.Scan()
	}
	began, established := 0, w.Established == nil
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if established = established || w.Established(); !established {
			if began++; began >= int(limit/stallCheck) {
				return fmt.Errorf("%w within %v", ErrNotEstablished, limit)
			}
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
