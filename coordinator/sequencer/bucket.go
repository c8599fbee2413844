package sequencer

import "time"

// A bucket limits a rate with tokens, in integers: each microsecond adds a number of units,
// and a token is a number of units.
type bucket struct {
	perMicro int64     // units; at least 1
	token    int64     // units; at least 1
	burst    int64     // tokens that it holds when it is full; at least 1
	units    int64     // at most those of a full one
	at       time.Time // up to which units were added
}

// newBucket returns an empty bucket for a rate.
func newBucket(rate, periodMS, burst uint32, at time.Time) bucket {
	return bucket{perMicro: int64(rate), token: int64(periodMS) * 1_000, burst: int64(burst), at: at}
}

func (k *bucket) full() int64 { return k.burst * k.token }

// refill adds the units of the time since the last call.
func (k *bucket) refill(now time.Time) {
	us := now.Sub(k.at).Microseconds()
	if us <= 0 {
		return
	}
	k.at = k.at.Add(time.Duration(us) * time.Microsecond)
	if us > (k.full()-k.units)/k.perMicro {
		k.units = k.full()
	} else {
		k.units += us * k.perMicro
	}
}

// whole returns how many tokens the bucket has.
func (k *bucket) whole() int64 { return k.units / k.token }

// untilNext returns how long after the last refill an empty bucket has a token.
func (k *bucket) untilNext() time.Duration {
	return time.Duration((k.token-k.units)/k.perMicro+1) * time.Microsecond
}

// take takes a token, or returns how long it takes until there is one.
func (k *bucket) take(now time.Time) (wait time.Duration, ok bool) {
	if k.refill(now); k.units < k.token {
		return k.untilNext(), false
	}
	k.units -= k.token
	return 0, true
}
