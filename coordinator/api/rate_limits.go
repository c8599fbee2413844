package api

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// mostBuckets bounds how many owners have a bucket of their own; the others
	// share one.
	maxBuckets = 10_000
	// sweepPause is the least time between two searches for full buckets.
	minSweepInterval = time.Second
)

// submitLimit keeps one owner from submitting more than his share: a bucket of
// tokens each, of which a new job takes one. A full bucket is as good as none, so
// that it is forgotten when there are many. Buckets are the memory of this
// process: a new leader begins with full ones. Safe for concurrent use.
type rateLimits struct {
	rate  rate.Limit // tokens per second; 0 = there is no limit
	burst int

	mu      sync.Mutex // guards what follows
	buckets map[string]*rate.Limiter
	shared  *rate.Limiter // of owners that found no room
	swept   time.Time
}

func newRateLimits(perSecond float64, burst int) *rateLimits {
	l := &rateLimits{rate: rate.Limit(perSecond), burst: burst, buckets: make(map[string]*rate.Limiter)}
	l.shared = l.bucket()
	return l
}

func (l *rateLimits) bucket() *rate.Limiter { return rate.NewLimiter(l.rate, l.burst) }

// take takes a token of an owner. If there is none it takes nothing, and the
// error, of KindBusy, says when the next one comes.
func (l *rateLimits) take(owner string) error {
	if l.rate == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b := l.bucketOf(owner, now)
	if b.AllowN(now, 1) {
		return nil
	}
	missing := 1 - b.TokensAt(now)
	wait := time.Duration(missing / float64(l.rate) * float64(time.Second))
	return &Error{
		Kind: KindBusy, limit: limitRate, RetryAfter: max(wait.Round(time.Millisecond), time.Millisecond),
		Message: fmt.Sprintf("owner %s submits more than %v jobs a second; come back in %s", quote(owner), float64(l.rate), wait.Round(time.Millisecond)),
	}
}

// of finds the bucket of an owner. Called with the lock held.
func (l *rateLimits) bucketOf(owner string, now time.Time) *rate.Limiter {
	if b, ok := l.buckets[owner]; ok {
		return b
	}
	if len(l.buckets) >= maxBuckets && now.Sub(l.swept) >= minSweepInterval {
		l.swept = now
		for name, b := range l.buckets {
			if b.TokensAt(now) >= float64(l.burst) {
				delete(l.buckets, name)
			}
		}
	}
	if len(l.buckets) >= maxBuckets {
		return l.shared
	}
	b := l.bucket()
	l.buckets[owner] = b
	return b
}
