package calendar

import (
	"fmt"
	"strings"
	"time"
)

// maxOmitted is how many omitted ticks a preview counts between two ticks.
const maxOmitted = 100

// note tells what is unusual about a tick.
func (s *Schedule) note(f found, delay time.Duration) string {
	var notes []string
	if len(f.missing) > 0 {
		notes = append(notes, s.missing(f))
	}
	if which, of := order(s.zone, f.at); of > 1 {
		notes = append(notes, ordinal(which)+" of "+cardinal(of))
	}
	if delay > 0 {
		notes = append(notes, "starts "+delay.String()+" later")
	}
	return strings.Join(notes, "; ")
}

// missing names the times that do not exist, with the date if it is another one.
func (s *Schedule) missing(f found) string {
	local := segmentAt(s.zone, f.at).civil(f.at)
	format := civil.clock
	low, high := f.missing[0], f.missing[0]
	for _, c := range f.missing {
		low, high = min(low, c), max(high, c)
	}
	if low.day() != local.day() {
		format = civil.stamp
	}
	text := format(low)
	do := " does not exist"
	if high != low {
		if high.day() == low.day() {
			format = civil.clock
		}
		text += " to " + format(high)
		do = " do not exist"
	}
	if f.own {
		return "also for " + text + ", which" + do
	}
	return "moved: " + text + do
}

func ordinal(n int) string {
	if n <= 3 {
		return []string{"first", "second", "third"}[max(n, 1)-1]
	}
	return fmt.Sprintf("%dth", n)
}

func cardinal(n int) string {
	if n <= 3 {
		return []string{"one", "two", "three"}[max(n, 1)-1]
	}
	return fmt.Sprint(n)
}

// Preview returns up to n ticks after an instant. The note of each tells also which ticks
// before it are excluded or skipped.
func (s *Schedule) Preview(after time.Time, n int) []Tick {
	var ticks []Tick
	for len(ticks) < n {
		t, ok := s.Next(after)
		if !ok {
			break
		}
		if omitted := s.omitted(after, t.At); omitted != "" {
			t.Note = strings.TrimPrefix(t.Note+"; "+omitted, "; ")
		}
		ticks, after = append(ticks, t), t.At
	}
	return ticks
}

// omitted describes the ticks between two instants that are excluded or skipped.
func (s *Schedule) omitted(after, before time.Time) string {
	if s.complete == nil {
		return ""
	}
	var list []found
	for from := after.Unix() + 1; len(list) <= maxOmitted; {
		f, ok := s.complete.next(from)
		if !ok || f.at >= before.Unix() {
			break
		}
		list, from = append(list, f), f.at+1
	}
	if len(list) == 0 {
		return ""
	}
	first, last := list[0].civil, list[len(list)-1].civil
	switch {
	case len(list) > maxOmitted:
		return fmt.Sprintf("after %s (over %d ticks %s)", first.stamp(), maxOmitted, s.why(list))
	case len(list) == 1:
		return fmt.Sprintf("after %s (%s)", first.stamp(), s.why(list))
	case first.day() == last.day():
		return fmt.Sprintf("after %s to %s (%d ticks %s)", first.stamp(), last.clock(), len(list), s.why(list))
	}
	return fmt.Sprintf("after %s to %s (%d ticks %s)", first.date(), last.date(), len(list), s.why(list))
}

// why tells why ticks are omitted.
func (s *Schedule) why(list []found) string {
	excluded := 0
	for _, f := range list {
		if s.except.covers(f.civil) || s.except.coversInstant(f.at) {
			excluded++
		}
	}
	switch {
	case excluded == len(list):
		return "excluded"
	case excluded > 0:
		return "excluded or skipped"
	}
	return "skipped"
}
