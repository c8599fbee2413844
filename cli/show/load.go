package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Load adds how much a cluster does. before, if not nil, is an earlier answer, and adds a
// row with the rates since then. Queues are shown if they are used.
func (p *Printer) Load(l, before *dtaskv1.LoadResponse) {
	p.Line("leader %s, term %d, %s", Clean(l.GetLeader()), l.GetTerm(), absolute(l.GetAt()))
	orphaned := ""
	if n := l.GetOrphaned(); n > 0 {
		orphaned = fmt.Sprintf(", %s on workers without a session", Count(n))
	}
	p.Line("workers  %s with %s, %s running or queued on them%s", Count(l.GetWorkers()), Plural(l.GetSlots(), "slot"), Count(l.GetRunning()), orphaned)
	p.Line("ready    %s", readyTasks(l))
	p.Line("")
	t := NewTable("LAST", "JOBS/S", "TASKS/S", "FAILURES/S", "WAIT P50", "P95", "P99", "RUN P50", "P95", "P99")
	if ms := l.GetAt() - before.GetAt(); before.GetLeader() == l.GetLeader() && before.GetTerm() == l.GetTerm() && ms > 0 {
		t.Row(append(rates(Duration(time.Duration(ms)*time.Millisecond), l.GetTotals(), before.GetTotals(), ms), "", "", "", "", "", "")...)
	}
	for _, w := range l.GetWindows() {
		covered := time.Duration(w.GetCoveredMs()) * time.Millisecond
		name := Duration(time.Duration(w.GetWindowMs()) * time.Millisecond)
		if w.GetCoveredMs() < w.GetWindowMs()*9/10 {
			name += ", so far " + Duration(covered)
		}
		row := rates(name, w.GetCounts(), nil, w.GetCoveredMs())
		t.Row(append(append(row, quantiles(w.GetWait())...), quantiles(w.GetRun())...)...)
	}
	p.Table(t)
	if document.QueuesUsed(l.GetQueues()) {
		p.Line("")
		p.busiestQueues(l.GetQueues())
	}
}

// readyTasks counts the ready tasks by priority.
func readyTasks(l *dtaskv1.LoadResponse) string {
	total, parts := uint64(0), []string(nil)
	for _, r := range l.GetReady() {
		total += r.GetTasks()
		if r.GetTasks() > 0 {
			parts = append(parts, Count(r.GetTasks())+" "+document.Priority(r.GetPriority()))
		}
	}
	if total == 0 {
		return "no tasks"
	}
	text := Plural(total, "task") + " (" + strings.Join(parts, ", ") + "), the oldest for " + Duration(time.Duration(l.GetOldestMs())*time.Millisecond)
	if n := l.GetUnplaceable(); n > 0 {
		text += "; no worker can run " + Count(n)
	}
	return text
}

// rates begins a row with what happened within a time.
func rates(name string, after, before *dtaskv1.LoadCounts, ms int64) []string {
	rate := func(count func(*dtaskv1.LoadCounts) uint64) string {
		if ms <= 0 {
			return ""
		}
		n := document.PerSecond(count(after)-min(count(before), count(after)), ms)
		if n >= 100 {
			return Count(int64(n))
		}
		return fmt.Sprintf("%.1f", n)
	}
	return []string{name, rate((*dtaskv1.LoadCounts).GetSubmitted), rate((*dtaskv1.LoadCounts).GetCompleted), rate((*dtaskv1.LoadCounts).GetFailed)}
}

// quantiles formats a distribution; empty cells if it is empty.
func quantiles(l *dtaskv1.Latency) []string {
	if l.GetCount() == 0 {
		return []string{"", "", ""}
	}
	return []string{micros(l.GetP50Us()), micros(l.GetP95Us()), micros(l.GetP99Us())}
}

// micros formats a number of microseconds: 250µs, 1.2ms, 12ms, and from a second on as
// Duration does.
func micros(us int64) string {
	switch {
	case us < 1_000:
		return fmt.Sprintf("%dµs", us)
	case us < 10_000:
		return fmt.Sprintf("%.1fms", float64(us/100)/10)
	}
	return Duration(time.Duration(us) * time.Microsecond)
}
