package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Durations draws how long a task takes.
type Durations func(r *rand.Rand) time.Duration

// Fixed returns the same duration for all tasks.
func Fixed(d time.Duration) Durations { return func(*rand.Rand) time.Duration { return d } }

// Exponential draws from the exponential distribution with this mean.
func Exponential(mean time.Duration) Durations {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// Skewed returns the short duration for most tasks, and the long one for one in
// every, at random.
func Skewed(short, long time.Duration, every int) Durations {
	return func(r *rand.Rand) time.Duration {
		if r.IntN(every) == 0 {
			return long
		}
		return short
	}
}

// ParseDurations parses 10ms, exp:10ms, or skew:10ms:1s:50 (one in 50 takes 1
// s).
func ParseDurations(s string) (Durations, error) {
	kind, rest, named := strings.Cut(s, ":")
	if !named {
		kind, rest = "", s
	}
	parts := strings.Split(rest, ":")
	first, err := time.ParseDuration(parts[0])
	switch {
	case err != nil || first < 0:
	case kind == "" && len(parts) == 1:
		return Fixed(first), nil
	case kind == "exp" && len(parts) == 1:
		return Exponential(first), nil
	case kind == "skew" && len(parts) == 3:
		long, errLong := time.ParseDuration(parts[1])
		every, errEvery := strconv.Atoi(parts[2])
		if errLong == nil && errEvery == nil && every > 0 {
			return Skewed(first, long, every), nil
		}
	}
	return nil, fmt.Errorf("load: invalid durations %q: must be DURATION, exp:MEAN or skew:SHORT:LONG:ONE-IN", s)
}
