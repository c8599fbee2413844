// Package loglimit suppresses log messages that repeat.
package loglimit

import (
	"sync"
	"time"
)

const (
	interval = 5 * time.Second
	maxKeys  = 256 // the limiter forgets all keys at this count, which bounds its memory
)

// Limiter allows one message per key every five seconds and counts those that it
// suppresses. The zero value is ready to use. It is safe for concurrent use.
type Limiter struct {
	mu   sync.Mutex // guards seen
	seen map[string]*record
}

type record struct {
	at         time.Time
	suppressed int
}

// Allow reports whether a message with this key may be written now, and how many were
// suppressed since the previous one.
func (l *Limiter) Allow(key string) (suppressed int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.seen) >= maxKeys || l.seen == nil {
		l.seen = make(map[string]*record)
	}
	last := l.seen[key]
	switch {
	case last == nil:
		l.seen[key] = &record{at: now}
		return 0, true
	case now.Sub(last.at) < interval:
		last.suppressed++
		return 0, false
	}
	suppressed = last.suppressed
	*last = record{at: now}
	return suppressed, true
}
