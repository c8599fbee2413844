package spec

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"
)

// maxInstant is the last millisecond of the year 9999, the latest time that RFC 3339 has.
const maxInstant = 253_402_300_799_999

const instantForm = "write it with its offset from UTC, such as 2026-12-25T08:00:00+01:00 or 2026-12-25T07:00Z"

// ParseInstant parses a point in time as written in job files: RFC 3339, in which the
// seconds may be left out. The result is after 1970, in whole milliseconds.
func ParseInstant(s string) (time.Time, error) {
	at, p := instant(s)
	if p.bad() {
		return time.Time{}, p
	}
	return at, nil
}

func instant(s string) (time.Time, problem) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		at, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if at.UnixMilli() <= 0 {
			return at, problem{quote(s) + " is before 1970", "write a later time"}
		}
		return at.Truncate(time.Millisecond), problem{}
	}
	return time.Time{}, problem{"invalid time " + quote(s), instantForm}
}

// instant reads a point in time, in milliseconds.
func (r *reader) instant(n *yaml.Node) int64 {
	s, ok := r.text(n)
	if !ok {
		return 0
	}
	at, p := instant(s)
	if !r.holds(n, p) {
		return 0
	}
	return at.UnixMilli()
}

// instantProblem checks a point in time that is not in a file; 0 = none.
func instantProblem(ms int64) problem {
	if ms < 0 || ms > maxInstant {
		return problem{fmt.Sprintf("%d ms is out of range", ms), "send a time from 1970 to 9999"}
	}
	return problem{}
}

// formatInstant writes a point in time as a job file has it.
func formatInstant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
