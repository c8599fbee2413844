package worker

import (
	"sync"
	"time"
)

// lease is this worker's own judgement of whether its at-most-once attempts may
// go on. It trusts an answered beat from the moment that the beat was sent, so
// that a slow answer cannot stretch it, and reads the monotonic clock only.
type lease struct {
	ended func() // called without locks held, each time that the lease ends

	mu      sync.Mutex // guards all below
	length  time.Duration
	expires time.Time   // zero: never granted
	timer   *time.Timer // re-arms itself; nil while there is no lease
	closed  bool
}

// set takes the length that a leader announced; 0 means that leases never end.
func (l *lease) set(length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length = length
}

// renewed notes that a beat sent at this time was answered.
func (l *lease) renewed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.length <= 0 || l.closed {
		return
	}
	if expires := sent.Add(l.length); expires.After(l.expires) {
		l.expires = expires
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(l.expires), l.check)
	}
}

// valid reports whether an at-most-once attempt may begin now.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length <= 0 || time.Now().Before(l.expires)
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
