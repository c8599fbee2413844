package backoff

import (
	"math"
	"time"

	"github.com/dtask/dtask/scheduler/internal/splitmix"
)

// MaxDelay is the longest delay of any Policy. A time computed from it is far
// from the end of every representation of time.
const MaxDelay = 365 * 24 * time.Hour

// A Policy is the delay before the next attempt. The zero Policy has no delay.
type Policy struct {
	// Initial is the delay after the first failure. A negative one counts as 0.
	Initial time.Duration
	// Max caps the delay. Zero and less mean MaxDelay.
	Max time.Duration
	// Multiplier is the factor by which the delay grows with each further
	// failure. Less than 1, and NaN, count as 1.
	Multiplier float64
	// Jitter spreads the delay over the upper half of its length, so that tasks
	// that failed together aren't retried together.
	Jitter bool
}

// Delay returns the delay after the given failure, counted from 1; less counts
// as 1. It is between 0 and the smaller of Max and MaxDelay.
//
//	d     = min(Max, Initial × Multiplier^(failure-1))
//	Delay = d                                 without jitter
//	      = d/2 + a random part of d/2        with jitter
//
// The jitter is "equal jitter" of Marc Brooker, "Exponential Backoff And
// Jitter", AWS Architecture Blog, 2015. Unlike full jitter it never retries
// immediately. It depends only on the seed and the number of the failure.
func (p Policy) Delay(failure int, seed uint64) time.Duration {
	d := p.base(max(failure, 1))
	if !p.Jitter || d <= 1 {
		return d
	}
	half := d / 2
	random := splitmix.New(seed ^ uint64(max(failure, 1))<<32)    //nolint:gosec // G115: at least 1
	return d - half + time.Duration(random.Below(uint64(half)+1)) //nolint:gosec // G115: at most half
}

func (p Policy) base(failure int) time.Duration {
	limit := MaxDelay
	if p.Max > 0 {
		limit = min(p.Max, MaxDelay)
	}
	first := min(max(p.Initial, 0), limit)
	if first == 0 || failure == 1 || !(p.Multiplier > 1) { // not <= 1: NaN compares false
		return first
	}
	// Pow overflows to +Inf, which is above the limit like any other large
	// delay.
	d := float64(first) * math.Pow(p.Multiplier, float64(failure-1))
	if d < float64(limit) {
		return time.Duration(d)
	}
	return limit
}
