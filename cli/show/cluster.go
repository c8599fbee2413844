package show

import (
	"fmt"
	"slices"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Cluster adds the coordinators of a cluster.
func (p *Printer) Cluster(s *dtaskv1.StatusResponse) {
	leader := "no leader"
	if s.GetLeader() != "" {
		leader = "leader " + Clean(s.GetLeader())
	}
	p.Line("%s, term %d", leader, s.GetTerm())
	if s.GetAlarm() != "" {
		p.Line("ALARM: %s", Clean(s.GetAlarm()))
	}
	t := NewTable("ID", "ADDRESS", "STATE", "VOTER", "APPLIED", "LAG", "VERSION")
	for _, m := range s.GetMembers() {
		voter := "no"
		if m.GetVoter() {
			voter = "yes"
		}
		t.Row(m.GetId(), m.GetAddress(), m.GetState(), voter, fmt.Sprint(m.GetApplied()),
			fmt.Sprint(m.GetLag()), m.GetVersion())
	}
	p.Table(t)
}

// Workers adds a table of workers, with a column for drains if there are any, and
// a line on how to continue if there are more workers.
func (p *Printer) Workers(workers []*dtaskv1.Worker, more bool) {
	headings := []string{"ID", "NAME", "STATE", "RUNNING", "SINCE", "LABELS"}
	drains := slices.ContainsFunc(workers, func(w *dtaskv1.Worker) bool { return w.GetDrainUntil() != 0 })
	if drains {
		headings = append(headings, "DRAIN")
	}
	t := NewTable(headings...)
	for _, w := range workers {
		since := w.GetUpSince()
		if w.GetState() == "down" {
			since = w.GetDownSince()
		}
		running := fmt.Sprintf("%d of %d", w.GetRunning(), w.GetSlots())
		if w.GetQueued() > 0 {
			running += fmt.Sprintf(", %d queued", w.GetQueued())
		}
		row := []string{
			w.GetId(), w.GetName(), w.GetState(), running, p.ago(since),
			formatLabels(w.GetLabels()),
		}
		if drains {
			row = append(row, p.drain(w))
		}
		t.Row(row...)
	}
	p.Table(t)
	if more {
		p.Line("… and more: continue with --after %s, or list all with --limit 0",
			workers[len(workers)-1].GetId())
	}
}

// drain describes the drain of a worker: the remaining time and the reason.
func (p *Printer) drain(w *dtaskv1.Worker) string {
	if w.GetDrainUntil() == 0 {
		return ""
	}
	text := "deadline passed"
	if left := time.UnixMilli(w.GetDrainUntil()).Sub(p.now); left > 0 {
		text = Duration(left) + " left"
	}
	if w.GetDrainReason() != "" {
		text += ": " + w.GetDrainReason()
	}
	return text
}
