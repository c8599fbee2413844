package show

import (
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Limits adds a table of limits.
func (p *Printer) Limits(list []*dtaskv1.Limit) {
	t := NewTable("NAME", "RUNNING", "AT MOST", "RATE", "BURST", "WAITING")
	for _, l := range list {
		s := l.GetSettings()
		most, rate, burst := "-", "-", "-"
		if s.GetRunning() > 0 {
			most = Count(s.GetRunning()) + perKey(l)
		}
		if s.GetRate() > 0 {
			rate, burst = spec.FormatRate(s.GetRate(), s.GetPeriodMs())+perKey(l), Count(s.GetBurst())
		}
		t.Row(l.GetName(), Count(l.GetHeld()), most, rate, burst, Count(l.GetWaiting()))
	}
	p.Table(t)
}

// perKey follows a value that each key of a limit has.
func perKey(l *dtaskv1.Limit) string {
	if strings.HasSuffix(l.GetName(), "/*") {
		return " per key"
	}
	return ""
}

// ofLimit shows how many tasks run, and how many may.
func ofLimit(held uint64, s *dtaskv1.LimitSettings) string {
	if s.GetRunning() == 0 {
		return Count(held)
	}
	return Count(held) + "/" + Count(s.GetRunning())
}

// Limit adds a limit: its settings, and what counts and waits.
func (p *Printer) Limit(l *dtaskv1.Limit) {
	s := l.GetSettings()
	p.Line("limit %s (version %d)", p.bold(Clean(l.GetName())), l.GetVersion())
	if s.GetRunning() > 0 {
		p.field("at most", Plural(s.GetRunning(), "running task")+perKey(l))
	}
	if s.GetRate() > 0 {
		p.field("rate", fmt.Sprintf("%s%s, %s at once", spec.FormatRate(s.GetRate(), s.GetPeriodMs()), perKey(l), Count(s.GetBurst())))
	}
	p.field("set", strings.TrimSpace(p.ago(l.GetChangedAt())+by(l.GetSetBy())))
	p.field("running", Plural(l.GetHeld(), "task"))
	p.field("waiting", Plural(l.GetWaiting(), "task"))
	if len(l.GetCounters()) == 0 {
		return
	}
	columns := []string{"USED AS", "RUNNING", "WAITING"}
	if s.GetRate() > 0 {
		columns = append(columns, "MAY START")
	}
	t := NewTable(append(columns, "HOLDERS")...)
	shown := uint64(0)
	for _, c := range l.GetCounters() {
		shown += c.GetHeld() + c.GetWaiting()
		row := []string{c.GetUse(), ofLimit(c.GetHeld(), s), Count(c.GetWaiting())}
		if s.GetRate() > 0 {
			row = append(row, Count(c.GetTokens()))
		}
		t.Row(append(row, strings.Join(c.GetHolders(), ", "))...)
	}
	p.Table(t)
	if all := l.GetHeld() + l.GetWaiting(); all > shown { // a message has the keys with the most tasks
		p.Line("keys with fewer tasks are left out: they have %s", Plural(all-shown, "task"))
	}
}
