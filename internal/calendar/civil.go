package calendar

import "time"

// A civil is a time on a wall clock: seconds since 1970-01-01T00:00:00 as if the clock
// showed UTC.
type civil int64

const (
	daySeconds = 24 * 60 * 60
	// maxOffset is more than any zone differs from UTC, in seconds.
	maxOffset = 26 * 60 * 60
	// horizon is how far ahead a tick is searched, in seconds: ten years. A 29 February is
	// at most eight years ahead.
	horizon = 3653 * daySeconds
	// maxInstant is the last second of the year 9999, less a day for the zones.
	maxInstant = 253402300799 - daySeconds
)

// day returns the number of the day since 1970-01-01.
func (c civil) day() int64 {
	d := int64(c) / daySeconds
	if int64(c)%daySeconds < 0 {
		d--
	}
	return d
}

// second returns the second of the day.
func (c civil) second() int { return int(int64(c) - c.day()*daySeconds) }

// time returns the civil time as if it were UTC, for its date and its format.
func (c civil) time() time.Time { return time.Unix(int64(c), 0).UTC() }

// clock formats the time of day, with seconds only if there are any.
func (c civil) clock() string {
	if c.second()%60 != 0 {
		return c.time().Format("15:04:05")
	}
	return c.time().Format("15:04")
}

// date formats the date.
func (c civil) date() string { return c.time().Format("2006-01-02") }

// stamp formats date and time.
func (c civil) stamp() string { return c.date() + " " + c.clock() }

// startOf returns the begin of a day.
func startOf(day int64) civil { return civil(day * daySeconds) }

// daysIn returns the number of days of a month.
func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}
