package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// A story prints lines, each with the seconds since the start.
type story struct {
	out   io.Writer
	start time.Time
}

func newStory(out io.Writer) *story { return &story{out: out, start: time.Now()} }

// chapter begins a part of the story.
func (s *story) chapter(title string) {
	fmt.Fprintf(s.out, "\n%s\n", title)
}

// tell tells one thing.
func (s *story) tell(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// quote shows what a program wrote.
func (s *story) quote(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		fmt.Fprintf(s.out, "            %s\n", strings.TrimRight(line, "\n"))
	}
}

// A row of the final table: what was looked at, what was seen, and whether that
// is as it must be.
type row struct {
	what, seen string
	wrong      bool
}

// table shows rows under each other.
func (s *story) table(rows []row) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r.what))
	}
	for _, r := range rows {
		mark := "ok  "
		if r.wrong {
			mark = "BAD "
		}
		fmt.Fprintf(s.out, "  %s%-*s  %s\n", mark, width, r.what, r.seen)
	}
}

// count writes a number with commas between thousands.
func count[N int | uint64](n N) string {
	digits := strconv.FormatUint(uint64(n), 10) //nolint:gosec // nothing here is negative
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// millis writes a duration in milliseconds.
func millis(d time.Duration) string { return count(int(d.Milliseconds())) + " ms" }
