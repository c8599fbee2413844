package spec

import (
	"fmt"
	"time"

	"github.com/dtask/dtask/internal/calendar"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A Recurrence is when a schedule runs, as its file says, with the values of parameters in
// place: what a cluster stores. Every leader makes a calendar of it by its own time zones.
// Two files that mean the same by default have equal values. One of Cron, Every and At is
// set.
type Recurrence struct {
	Cron        []string
	Every       time.Duration // whole seconds
	At          []string
	Zone        string          // IANA name; empty = UTC
	Gap         calendar.Gap    // 0 = RunAfter
	Repeat      calendar.Repeat // 0 = Once
	Jitter      time.Duration   // whole milliseconds
	From, Until string          // empty = no bound
	Except      []string
}

// recurrence returns the texts that a valid definition was read from.
func recurrence(c *calendar.Config) Recurrence {
	r := Recurrence{
		Cron: texts(c.Cron), Every: c.Every, At: texts(c.At), Jitter: c.Jitter,
		From: c.From.String(), Until: c.Until.String(), Except: texts(c.Except),
	}
	if c.Zone != time.UTC {
		r.Zone = c.Zone.String()
	}
	if c.Gap != calendar.RunAfter {
		r.Gap = c.Gap
	}
	if c.Repeat != calendar.Once {
		r.Repeat = c.Repeat
	}
	return r
}

// texts returns parsed values as they were written; nil for an empty list.
func texts[T fmt.Stringer](list []T) []string {
	var all []string
	for _, v := range list {
		all = append(all, v.String())
	}
	return all
}

// Definition returns the schedule, without its job, as a cluster takes it.
func (s *Schedule) Definition() *dtaskv1.ScheduleDefinition {
	r := &s.Recurrence
	return &dtaskv1.ScheduleDefinition{
		Cron: r.Cron, EveryMs: r.Every.Milliseconds(), At: r.At, Timezone: r.Zone,
		Gap: dtaskv1.ScheduleGap(r.Gap), Repeat: dtaskv1.ScheduleRepeat(r.Repeat), //nolint:gosec // 0 to 2
		JitterMs: r.Jitter.Milliseconds(), From: r.From, Until: r.Until, Except: r.Except,
		Overlap: dtaskv1.ScheduleOverlap(s.Overlap), Missed: dtaskv1.ScheduleMissed(s.Missed), MissedWithinMs: s.MissedWithin.Milliseconds(), //nolint:gosec // 1 to 5
	}
}
