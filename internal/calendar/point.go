package calendar

import (
	"fmt"
	"strings"
	"time"
)

// A Point is a time in a definition: a date, a wall-clock time in the zone of the
// schedule, or an instant. The zero value is unset. Use [ParsePoint].
type Point struct {
	is   pointKind
	at   civil // for an instant: its time in UTC
	text string
}

type pointKind int

const (
	date pointKind = iota + 1
	wallClock
	instant
)

// String returns the point as it was written.
func (p Point) String() string { return p.text }

// IsZero reports whether the point is unset.
func (p Point) IsZero() bool { return p.is == 0 }

// HasTime reports whether the point has a time of day.
func (p Point) HasTime() bool { return p.is == wallClock || p.is == instant }

// layouts are the forms of a point. A colon and seconds may follow the minutes.
var layouts = []struct {
	is     pointKind
	layout string
}{
	{date, "2006-01-02"},
	{wallClock, "2006-01-02T15:04"},
	{wallClock, "2006-01-02T15:04:05"},
	{instant, "2006-01-02T15:04Z07:00"},
	{instant, "2006-01-02T15:04:05Z07:00"},
}

const pointForm = "write it like 2026-12-25, 2026-12-25T08:00 or 2026-12-25T08:00:00+01:00"

// ParsePoint parses a date such as 2026-12-25, a wall-clock time such as 2026-12-25T08:00
// or 2026-12-25T08:00:30, or an instant with an offset, as in RFC 3339. The years are 1970
// to 9999, and seconds have no fraction. The error is [*Error].
func ParsePoint(text string) (Point, error) {
	for _, l := range layouts {
		t, err := time.Parse(l.layout, text)
		if err != nil {
			continue
		}
		at := t.Unix()
		if t.Nanosecond() != 0 {
			return Point{}, &Error{What: fmt.Sprintf("%q has a fraction of a second", clip(text)), Do: "write whole seconds"}
		}
		if t.Year() < 1970 || at < 0 || at > maxInstant {
			return Point{}, &Error{What: fmt.Sprintf("%q is out of range", clip(text)), Do: "the years are 1970 to 9999"}
		}
		return Point{l.is, civil(at), text}, nil
	}
	do := pointForm
	if strings.Count(text, "-") == 2 && strings.Contains(text, " ") {
		do = "write a T between date and time: 2026-12-25T08:00"
	}
	return Point{}, &Error{What: fmt.Sprintf("invalid time %q", clip(text)), Do: do}
}

// first returns the first instant of a point: the begin of a date, the first occurrence
// of a wall-clock time, and the end of the gap that contains it.
func (p Point) first(zone *time.Location) int64 {
	if p.is == instant {
		return int64(p.at)
	}
	if list := occurrences(zone, p.at); len(list) > 0 {
		return list[0]
	}
	return gapEnd(zone, p.at)
}

// last returns the last instant of a point: the end of a date, and the last occurrence of
// a wall-clock time. For one in a gap, it is the end of the gap, so that a tick that the
// gap moves is included.
func (p Point) last(zone *time.Location) int64 {
	c := p.at
	switch p.is {
	case instant:
		return int64(c)
	case date:
		c += daySeconds - 1
	case wallClock:
	}
	if list := occurrences(zone, c); len(list) > 0 {
		return list[len(list)-1]
	}
	return gapEnd(zone, c)
}
