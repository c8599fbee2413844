package zoneinfo

import (
	"iter"
	"math"
	"time"
)

// A Transition is a moment at which the clocks of a zone are set forward or back.
type Transition struct {
	At            time.Time     // the first instant with the new offset, in UTC
	Before, After time.Duration // offsets from UTC, positive to the east
}

// Transitions returns the transitions of a zone that change its offset, from one instant
// to before another, in order. Changes of the name or of the daylight-saving flag alone
// are not among them.
func Transitions(zone *time.Location, from, to time.Time) iter.Seq[Transition] {
	return func(yield func(Transition) bool) {
		b := BoundsOf(zone, from.Unix()-1)
		for b.End < to.Unix() {
			next := BoundsOf(zone, b.End)
			t := Transition{time.Unix(b.End, 0).UTC(), time.Duration(b.Offset) * time.Second, time.Duration(next.Offset) * time.Second}
			if b.End >= from.Unix() && !yield(t) {
				return
			}
			b = next
		}
	}
}

// Bounds are the longest time with one offset around an instant.
type Bounds struct {
	// Start is the first instant, and End the first one after it, in seconds since 1970.
	// Without a transition, they are math.MinInt64 / 2 and math.MaxInt64 / 2.
	Start, End int64
	Offset     int64 // seconds to the east of UTC
}

// maxMerges bounds how many bounds of package time form one: a zone whose rules change
// nothing but a name has an endless number.
const maxMerges = 64

// BoundsOf returns the time with one offset that contains an instant, in seconds since
// 1970. In contrast to [time.Time.ZoneBounds], it ends where the offset changes, and not
// where a name or a year does.
func BoundsOf(zone *time.Location, at int64) Bounds {
	b := rawBounds(zone, at)
	for range maxMerges {
		if b.End >= math.MaxInt64/2 {
			break
		}
		next := rawBounds(zone, b.End)
		if next.Offset != b.Offset {
			break
		}
		b.End = next.End
	}
	for range maxMerges {
		if b.Start <= math.MinInt64/2 {
			break
		}
		previous := rawBounds(zone, b.Start-1)
		if previous.Offset != b.Offset {
			break
		}
		b.Start = previous.Start
	}
	return b
}

// rawBounds returns bounds as package time has them, but with those that contain the
// instant and overlap no other. After the last listed transition of a zone, package time
// ends them with each year. Then, on the last day of a leap year, their end is not after
// the instant, and in the year of that transition, their start may be before it.
func rawBounds(zone *time.Location, at int64) Bounds {
	b := zoneBounds(zone, at)
	if b.End <= at {
		const day = 24 * 60 * 60
		b.End = at - at%day + day // such years are after 1970
	}
	for range maxMerges {
		if b.Start <= math.MinInt64/2 {
			break
		}
		first := zoneBounds(zone, b.Start)
		if first.End <= b.Start || first.End > at {
			break
		}
		b.Start = first.End
	}
	return b
}

// zoneBounds returns the bounds of package time.
func zoneBounds(zone *time.Location, at int64) Bounds {
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	b := Bounds{Start: math.MinInt64 / 2, End: math.MaxInt64 / 2, Offset: int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		b.Start = start.Unix()
	}
	if !end.IsZero() {
		b.End = end.Unix()
	}
	return b
}
