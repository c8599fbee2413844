package show

import (
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Limits adds a table of limits.
func (p *Printer) Limits(list []*dtaskv1.Limit) {
	t := NewTable("NAME", "LIMIT", "RUNNING", "WAITING")
	for _, l := range list {
		t.Row(l.GetName(), Count(l.GetRunning()), Count(l.GetHeld()), Count(l.GetWaiting()))
	}
	p.Table(t)
}

// Limit adds a limit: its value, and what counts and waits.
func (p *Printer) Limit(l *dtaskv1.Limit) {
	p.Line("limit %s (version %d)", p.bold(Clean(l.GetName())), l.GetVersion())
	each := ""
	if strings.HasSuffix(l.GetName(), "/*") {
		each = ", for each key"
	}
	p.field("at most", Plural(l.GetRunning(), "running task")+each)
	p.field("set", strings.TrimSpace(p.ago(l.GetChangedAt())+by(l.GetSetBy())))
	p.field("running", Plural(l.GetHeld(), "task"))
	p.field("waiting", Plural(l.GetWaiting(), "task"))
	if len(l.GetCounters()) == 0 {
		return
	}
	t := NewTable("USED AS", "RUNNING", "WAITING", "HOLDERS")
	for _, c := range l.GetCounters() {
		t.Row(c.GetUse(), fmt.Sprintf("%s/%s", Count(c.GetHeld()), Count(l.GetRunning())), Count(c.GetWaiting()), strings.Join(c.GetHolders(), ", "))
	}
	p.Table(t)
}
