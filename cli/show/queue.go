package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Queues adds a table of queues.
func (p *Printer) Queues(list []*dtaskv1.Queue) {
	t := NewTable("NAME", "STATE", "WEIGHT", "WAITING", "RUNNING", "OLDEST", "WAIT P50", "P99")
	for _, q := range list {
		t.Row(q.GetName(), document.QueueState(q), Count(q.GetSettings().GetWeight()), Count(q.GetWaiting()), runningOf(q),
			wait(q.GetOldestWaitUs()), wait(q.GetWaitP50Us()), wait(q.GetWaitP99Us()))
	}
	p.Table(t)
}

// runningOf returns how many tasks of a queue run, and of how many.
func runningOf(q *dtaskv1.Queue) string {
	if most := q.GetSettings().GetMaxRunning(); most > 0 {
		return Count(q.GetRunning()) + "/" + Count(most)
	}
	return Count(q.GetRunning())
}

// wait formats a duration; none is empty.
func wait(us int64) string {
	if us == 0 {
		return ""
	}
	return micros(us)
}

// Queue adds a queue: its settings, and what waits and runs in it.
func (p *Printer) Queue(q *dtaskv1.Queue) {
	version := fmt.Sprintf("version %d", q.GetVersion())
	if q.GetVersion() == 0 {
		version = "not set"
	}
	p.Line("queue %s (%s): %s", p.bold(Clean(q.GetName())), version, p.state(document.QueueState(q)))
	s := q.GetSettings()
	p.field("weight", Count(s.GetWeight()))
	if s.GetMaxRunning() > 0 {
		p.field("at most", Plural(s.GetMaxRunning(), "running task"))
	}
	for _, name := range slices.Sorted(maps.Keys(s.GetMax())) {
		p.field("at most", fmt.Sprintf("%s of %s", amountOf(s.GetMax()[name]), name))
	}
	p.field("require", formatLabels(s.GetRequire()))
	if s.GetSubmitRate() > 0 {
		p.field("submit", fmt.Sprintf("%s, %s at once", spec.FormatRate(s.GetSubmitRate(), s.GetSubmitPeriodMs()), Count(s.GetSubmitBurst())))
	}
	if q.GetChangedAt() != 0 {
		p.field("set", strings.TrimSpace(p.ago(q.GetChangedAt())+by(q.GetSetBy())))
	}
	if q.GetPausedAt() != 0 {
		p.field("paused", p.ago(q.GetPausedAt())+by(q.GetPausedBy())+reason(q.GetPauseReason()))
	}
	p.field("waiting", Plural(q.GetWaiting(), "task")+cmp.Or(prefixed(", the oldest for ", wait(q.GetOldestWaitUs())), ""))
	p.field("running", Plural(q.GetRunning(), "task"))
	if q.GetWaitP50Us() > 0 {
		p.field("waits", fmt.Sprintf("%s (p50), %s (p99)", wait(q.GetWaitP50Us()), wait(q.GetWaitP99Us())))
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// amountOf formats thousandths.
func amountOf(n int64) string {
	if n%1000 == 0 {
		return Count(n / 1000)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", n/1000, n%1000), "0")
}
