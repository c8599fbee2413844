package sequencer

import "time"

// monoTime is a timestamp on the term's monotonic clock, in nanoseconds since
// batcher.origin. 0 means never. Every held attempt has several, and a
// time.Time is three times as large.
type monoTime int64

// since returns the time between before and t.
func (t monoTime) since(before monoTime) time.Duration { return time.Duration(t - before) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// milliseconds returns t in milliseconds.
func (t monoTime) milliseconds() int64 { return int64(t) / int64(time.Millisecond) }
