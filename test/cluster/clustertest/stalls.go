package clustertest

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Stalls finds out for how long the machine did not let this process run: then it
// mostly let nobody run, and what was late was late for no fault of its own. A stall of
// a part of the machine, which this process does not feel, is not seen.
type Stalls struct {
	mu   sync.Mutex // guards all below
	last time.Time  // of the pulse
	lost time.Duration
}

const (
	// pulse is how often a watch for stalls looks at the clock.
	pulse = 20 * time.Millisecond
	// hiccup is the tolerated delay; a longer one is a stall.
	hiccup = 200 * time.Millisecond
)

// WatchStalls watches until the test ends.
func WatchStalls(t *testing.T) *Stalls {
	t.Helper()
	s := &Stalls{last: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.beat()
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	return s
}

// beat notes how late the pulse is. The first call after a stall counts it.
func (s *Stalls) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if late := now.Sub(s.last) - pulse; late > hiccup {
		s.lost += late
	}
	s.last = now
}

// Lost is the length of all stalls so far. What may take a second may take as much
// longer as this has grown meanwhile.
func (s *Stalls) Lost() time.Duration {
	s.beat()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
