package process

import (
	"sync"
	"time"
)

// A Lease is until when programs may run. Their supervisors end them then, also if the
// worker is stopped at that time and can't. The zero Lease has ended. It is safe for
// concurrent use.
type Lease struct {
	mu      sync.Mutex // guards the rest
	until   time.Duration
	renewed chan struct{} // closed at the next renewal; nil: nobody waits
}

// Renew extends the lease to a reading of [Monotonic]. An earlier one has no effect.
func (l *Lease) Renew(until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until <= l.until {
		return
	}
	l.until = until
	if l.renewed != nil {
		close(l.renewed)
		l.renewed = nil
	}
}

// current returns the end of the lease, and a channel that is closed when it is renewed.
func (l *Lease) current() (until time.Duration, renewed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed == nil {
		l.renewed = make(chan struct{})
	}
	return l.until, l.renewed
}
