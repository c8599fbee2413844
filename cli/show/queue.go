package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// Queues adds a table of queues.
func (p *Printer) Queues(list []*dtaskv1.Queue) {
	p.queues("NAME", list)
}

// maxQueues is how many queues dtaskctl top shows.
const maxQueues = 10

// busiestQueues adds a table of the queues in which most tasks wait and run, by name, and
// how many there are besides. By name, so that they stay in their lines while their tasks
// change.
func (p *Printer) busiestQueues(all []*dtaskv1.Queue) {
	list := slices.Clone(all)
	slices.SortStableFunc(list, func(a, b *dtaskv1.Queue) int {
		return cmp.Or(cmp.Compare(b.GetWaiting(), a.GetWaiting()), cmp.Compare(b.GetRunning(), a.GetRunning()))
	})
	rest := list[min(len(list), maxQueues):]
	list = list[:len(list)-len(rest)]
	slices.SortFunc(list, func(a, b *dtaskv1.Queue) int { return cmp.Compare(a.GetName(), b.GetName()) })
	p.queues("QUEUE", list)
	if len(rest) == 0 {
		return
	}
	var waiting, running, paused uint64
	for _, q := range rest {
		waiting, running = waiting+q.GetWaiting(), running+q.GetRunning()
		if q.GetPausedAt() != 0 {
			paused++
		}
	}
	text := fmt.Sprintf("… and %s more with %s waiting and %s running", Count(len(rest)), Count(waiting), Count(running))
	if paused > 0 {
		text += fmt.Sprintf(", %s of them paused", Count(paused))
	}
	p.Line("%s: dtaskctl queue list", text)
}

// queues adds a table of queues whose first column has a heading.
func (p *Printer) queues(heading string, list []*dtaskv1.Queue) {
	t := NewTable(heading, "STATE", "WEIGHT", "WAITING", "RUNNING", "OLDEST", "WAIT P50", "P99")
	for _, q := range list {
		t.Row(q.GetName(), document.QueueState(q), Count(q.GetSettings().GetWeight()), Count(q.GetWaiting()), runningOf(q),
			wait(q.GetOldestWaitUs()), medianWait(q), wait(q.GetWaitP99Us()))
	}
	p.Table(t)
}

// minShownWait is the shortest wait that a summary shows: in each queue in which tasks start, one
// has waited for some milliseconds.
const minShownWait = time.Second

// QueueSummary adds a line about the queues of a cluster; nothing for nil.
func (p *Printer) QueueSummary(s *document.QueueSummary) {
	if s == nil {
		return
	}
	const maxPaused = 3
	text := Plural(s.Queues, "queue")
	if n := len(s.Paused); n > 0 {
		text += "; paused: " + strings.Join(s.Paused[:min(n, maxPaused)], ", ")
		if n > maxPaused {
			text += " and " + Count(n-maxPaused) + " more"
		}
	}
	waits := make([]string, 0, len(s.Waiting))
	for _, w := range s.Waiting {
		if w.OldestWait < float64(minShownWait.Milliseconds()) {
			break // the others are shorter
		}
		waits = append(waits, w.Name+" "+micros(int64(w.OldestWait*1000)))
	}
	if len(waits) > 0 {
		text += "; longest waits: " + strings.Join(waits, ", ")
	}
	p.Line("%s", Clean(text))
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

// medianWait formats the wait that half of the last tasks did not exceed. It is 0 also if no task
// has waited, but then the 99th percentile is, too.
func medianWait(q *dtaskv1.Queue) string {
	if q.GetWaitP50Us() == 0 && q.GetWaitP99Us() > 0 {
		return "<1ms"
	}
	return wait(q.GetWaitP50Us())
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
	if q.GetWaitP99Us() > 0 {
		p.field("waits", fmt.Sprintf("%s (p50), %s (p99)", medianWait(q), wait(q.GetWaitP99Us())))
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
