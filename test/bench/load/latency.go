package load

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"
)

// stampSize is the length of a stamp: a letter and the time.
const stampSize = 9

// Stamp returns a payload of at least 9 bytes with the time at which a task
// became ready, for Latency. It is valid on this machine only.
func Stamp(at time.Time, size int) []byte {
	b := make([]byte, max(size, stampSize))
	b[0] = 's'
	binary.BigEndian.PutUint64(b[1:], uint64(at.UnixNano())) //nolint:gosec // after 1970
	return b
}

// stamped parses a stamp.
func stamped(payload []byte) (time.Time, bool) {
	if len(payload) < stampSize || payload[0] != 's' {
		return time.Time{}, false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(payload[1:]))), true //nolint:gosec // as it was written
}

// Latency is a distribution of durations: 16 buckets for each doubling, so that
// the error of a quantile is at most 6 %. The zero value is empty. Safe for
// concurrent use.
type Latency struct {
	buckets [64 * perDoubling]atomic.Uint64
}

const perDoubling = 16

// Add counts a duration; a negative one counts as zero.
func (l *Latency) Add(d time.Duration) { l.buckets[bucket(uint64(max(d, 0)))].Add(1) } //nolint:gosec // not negative

func bucket(ns uint64) int {
	if ns < perDoubling {
		return int(ns) //nolint:gosec // small
	}
	exponent := bits.Len64(ns) - 5 // ns>>exponent is 16 to 31
	return exponent*perDoubling + int(ns>>exponent)
}

// upper returns the largest duration of a bucket.
func upper(i int) time.Duration {
	if i < 2*perDoubling {
		return time.Duration(i)
	}
	exponent := i/perDoubling - 1
	return time.Duration((uint64(i%perDoubling+perDoubling)+1)<<exponent - 1) //nolint:gosec // below 2^63
}

// Count returns how many durations were added.
func (l *Latency) Count() (n uint64) {
	for i := range l.buckets {
		n += l.buckets[i].Load()
	}
	return n
}

// Quantile returns a duration that a share of q, 0 to 1, does not exceed; 0 if
// the distribution is empty.
func (l *Latency) Quantile(q float64) time.Duration {
	total := l.Count()
	rank := uint64(q * float64(total))
	seen := uint64(0)
	last := time.Duration(0)
	for i := range l.buckets {
		if n := l.buckets[i].Load(); n > 0 {
			seen += n
			last = upper(i)
			if seen > rank {
				return last
			}
		}
	}
	return last
}
