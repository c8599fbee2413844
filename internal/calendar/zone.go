package calendar

import (
	"time"

	"github.com/dtask/dtask/internal/zoneinfo"
)

// A segment is a time in which the offset of a zone is constant.
type segment struct {
	start, end int64 // instants in seconds since 1970: from start to before end
	offset     int64 // seconds to the east of UTC
}

// civil returns the wall-clock time of an instant of the segment.
func (s segment) civil(at int64) civil { return civil(at + s.offset) }

// instant returns the instant of a wall-clock time, and whether the segment contains it.
func (s segment) instant(c civil) (at int64, ok bool) {
	at = int64(c) - s.offset
	return at, s.start <= at && at < s.end
}

// segmentAt returns the segment of a zone that contains an instant.
func segmentAt(zone *time.Location, at int64) segment {
	b := zoneinfo.BoundsOf(zone, at)
	return segment{b.Start, b.End, b.Offset}
}

// occurrences returns the instants at which the wall clock of a zone shows a time, in
// order: one, none if it is in a gap, two if it is in a repeat.
func occurrences(zone *time.Location, c civil) []int64 {
	var list []int64
	for s := segmentAt(zone, int64(c)-maxOffset); ; s = segmentAt(zone, s.end) {
		if at, ok := s.instant(c); ok {
			list = append(list, at)
		}
		if s.end > int64(c)+maxOffset {
			return list
		}
	}
}

// gapEnd returns the first instant after the gap that contains a wall-clock time. There
// must be one: the time has no occurrences.
func gapEnd(zone *time.Location, c civil) int64 {
	before := segmentAt(zone, int64(c)-maxOffset)
	for {
		after := segmentAt(zone, before.end)
		if c < after.civil(after.start) && before.civil(before.end) <= c {
			return after.start
		}
		before = after
	}
}

// order returns how often the wall clock shows the time that it shows at an instant, and
// which of these times this one is, from 1.
func order(zone *time.Location, at int64) (which, of int) {
	s := segmentAt(zone, at)
	if at-s.start > 2*maxOffset && s.end-at > 2*maxOffset {
		return 1, 1
	}
	list := occurrences(zone, s.civil(at))
	for i, other := range list {
		if other == at {
			which = i + 1
		}
	}
	return which, len(list)
}
