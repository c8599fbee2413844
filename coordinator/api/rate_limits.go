package api

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/fsm"
)

const (
	// maxBuckets bounds how many owners have their own bucket; all others share
	// one.
	maxBuckets = 10_000
	// minSweepInterval is the minimum time between two searches for full buckets.
	minSweepInterval = time.Second
)

// rateLimits limits the submission rate of each owner in each namespace with a token
// bucket; each new job takes a token. Full buckets are equivalent to new ones and are
// removed when there are many. Buckets are not replicated: a new leader starts
// with full ones. It is safe for concurrent use.
type rateLimits struct {
	rate  rate.Limit // tokens per second; 0 = unlimited
	burst int

	mu      sync.Mutex               // guards the rest
	buckets map[string]*rate.Limiter // by namespace and owner
	shared  *rate.Limiter            // of owners without their own bucket
	swept   time.Time
}

func newRateLimits(perSecond float64, burst int) *rateLimits {
	l := &rateLimits{rate: rate.Limit(perSecond), burst: burst, buckets: make(map[string]*rate.Limiter)}
	l.shared = l.bucket()
	return l
}

func (l *rateLimits) bucket() *rate.Limiter { return rate.NewLimiter(l.rate, l.burst) }

// take takes a token of an owner in a namespace. If the bucket is empty, the error,
// of KindBusy, has the delay until the next token.
func (l *rateLimits) take(namespace, owner string) error {
	if l.rate == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b := l.bucketOf(fsm.ScopedKey(namespace, owner), now)
	if b.AllowN(now, 1) {
		return nil
	}
	missing := 1 - b.TokensAt(now)
	wait := time.Duration(missing / float64(l.rate) * float64(time.Second))
	return &Error{
		Kind: KindBusy, limit: limitRate, RetryAfter: max(wait.Round(time.Millisecond), time.Millisecond),
		Message: fmt.Sprintf("owner %s exceeds %v jobs per second; retry in %s", quote(owner), float64(l.rate), wait.Round(time.Millisecond)),
	}
}

// bucketOf returns a bucket. The caller holds the lock.
func (l *rateLimits) bucketOf(key string, now time.Time) *rate.Limiter {
	if b, ok := l.buckets[key]; ok {
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
	l.buckets[key] = b
	return b
}
