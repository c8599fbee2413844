package calendar

import (
	"math/bits"
	"time"
)

// An Expression is a cron expression: when the wall clock matches it. Use [ParseCron].
type Expression struct {
	seconds, minutes, hours uint64 // bit n: the value n matches
	days, months, weekdays  uint64 // days and months from 1; weekdays from 0, Sunday
	// eitherDay is set if both day fields are restricted: then a date matches if either
	// of them does.
	eitherDay bool
	interval  bool // follows real time through shifts, see the package comment
	text      string
}

// String returns the expression as it was written.
func (e *Expression) String() string { return e.text }

// Interval reports whether the expression follows real time through the shifts of its
// zone, because its minute or hour has a *, a range or a step.
func (e *Expression) Interval() bool { return e.interval }

func has(set uint64, n int) bool { return set>>uint(n)&1 != 0 } //nolint:gosec // below 64

// from returns the smallest value of a set that is n or more, or 64.
func from(set uint64, n int) int {
	if n > 63 {
		return 64
	}
	return bits.TrailingZeros64(set >> uint(n) << uint(n)) //nolint:gosec // 0 to 63
}

// next returns the first wall-clock time that matches, from c to limit, or limit + 1.
func (e *Expression) next(c, limit civil) civil {
	day := c.day()
	if e.matchesDay(day) {
		if s, ok := e.nextSecond(c.second()); ok {
			return min(startOf(day)+civil(s), limit+1)
		}
	}
	if day = e.nextDay(day+1, limit.day()); day > limit.day() {
		return limit + 1
	}
	s, _ := e.nextSecond(0)
	return min(startOf(day)+civil(s), limit+1)
}

// nextSecond returns the first second of a day that matches, from s on.
func (e *Expression) nextSecond(s int) (int, bool) {
	hour, minute, second := s/3600, s/60%60, s%60
	if !has(e.hours, hour) {
		hour, minute, second = from(e.hours, hour), 0, 0
	} else if !has(e.minutes, minute) {
		minute, second = from(e.minutes, minute), 0
	}
	if second = from(e.seconds, second); second > 59 {
		second, minute = from(e.seconds, 0), from(e.minutes, minute+1)
	}
	if minute > 59 {
		second, minute, hour = from(e.seconds, 0), from(e.minutes, 0), from(e.hours, hour+1)
	}
	if minute = from(e.minutes, minute); hour > 23 {
		return 0, false
	}
	return hour*3600 + minute*60 + second, true
}

// matchesDay reports whether a date matches.
func (e *Expression) matchesDay(day int64) bool {
	t := startOf(day).time()
	return has(e.months, int(t.Month())) && e.matchesDate(t.Day(), int(t.Weekday()))
}

// matchesDate reports whether a day of a month that matches does, too.
func (e *Expression) matchesDate(day, weekday int) bool {
	if e.eitherDay {
		return has(e.days, day) || has(e.weekdays, weekday)
	}
	return has(e.days, day) && has(e.weekdays, weekday)
}

// nextDay returns the first day that matches, from one to another, or a later one.
func (e *Expression) nextDay(first, last int64) int64 {
	t := startOf(first).time()
	year, month, date := t.Date()
	weekday := int(t.Weekday())
	for day := first; day <= last; {
		length := daysIn(year, month)
		if !has(e.months, int(month)) {
			day, weekday = day+int64(length-date+1), (weekday+length-date+1)%7
		} else {
			for ; date <= length; date, day, weekday = date+1, day+1, (weekday+1)%7 {
				if e.matchesDate(date, weekday) {
					return day
				}
			}
		}
		if date, month = 1, month+1; month > time.December {
			month, year = time.January, year+1
		}
	}
	return last + 1
}
