package worker

import (
	"sync"
	"time"

	"github.com/dtask/dtask/worker/process"
)

// lease decides whether this worker's at-most-once attempts, and those with named limits,
// may continue. An answered heartbeat renews it from the time at which the heartbeat was
// sent, so that a slow answer cannot extend it. It uses the monotonic clock only.
type lease struct {
	ended func() // called without locks held, each time the lease ends
	// programs ends with the lease. Their supervisors know it, and end commands with limits
	// also while this process is stopped.
	programs process.Lease

	mu      sync.Mutex // guards the rest
	length  time.Duration
	expires time.Time   // zero: never granted
	timer   *time.Timer // runs check; nil while there is no lease
	closed  bool
}

// set sets the length to that of a new leader; 0 means that leases never end.
func (l *lease) set(length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length = length
}

// renew renews the lease after the answer to a heartbeat that was sent at this
// time.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length <= 0 || l.closed {
		return
	}
	if expires := sent.Add(l.length); expires.After(l.expires) {
		l.expires = expires
		l.programs.Renew(process.Monotonic() + time.Until(expires))
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(l.expires), l.check)
	}
}

// over reports whether the lease has ended. One that was never granted has not.
func (l *lease) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length > 0 && !l.expires.IsZero() && time.Until(l.expires) <= 0
}

// ofPrograms returns the lease for supervisors; nil if leases never end.
func (l *lease) ofPrograms() *process.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length <= 0 {
		return nil
	}
	return &l.programs
}

// check runs when the lease would end, and again later if it was renewed.
func (l *lease) check() {
	l.mu.Lock()
	if l.closed || l.length <= 0 {
		l.timer = nil
		l.mu.Unlock()
		return
	}
	if left := time.Until(l.expires); left > 0 {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.timer = nil
	l.mu.Unlock()
	l.ended()
}

// close stops the timer.
func (l *lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}
