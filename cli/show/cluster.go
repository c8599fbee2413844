package show

import (
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Cluster adds the coordinators of a cluster, and a line about its queues unless that is nil.
func (p *Printer) Cluster(s *dtaskv1.StatusResponse, queues *document.QueueSummary) {
	leader := "no leader"
	if s.GetLeader() != "" {
		leader = "leader " + Clean(s.GetLeader())
	}
	cluster := ""
	if s.GetClusterId() != "" {
		cluster = ", cluster " + Clean(s.GetClusterId())
	}
	if s.GetName() != "" {
		cluster = ", cluster " + Clean(s.GetName()) + " (" + Clean(s.GetClusterId()) + ")"
	}
	if s.GetLevel() != 0 {
		cluster += fmt.Sprintf(", level %d", s.GetLevel())
	}
	p.Line("%s, term %d%s", leader, s.GetTerm(), cluster)
	t := NewTable("ID", "ADDRESS", "STATE", "VOTER", "APPLIED", "LAG", "LEVEL", "TLS", "DISK FREE", "VERSION")
	for _, m := range s.GetMembers() {
		voter := "no"
		if m.GetVoter() {
			voter = "yes"
		}
		applied, lag := fmt.Sprint(m.GetApplied()), fmt.Sprint(m.GetLag())
		if m.GetLagMs() > 0 {
			lag += ", " + Duration(time.Duration(m.GetLagMs())*time.Millisecond)
		}
		if m.GetState() == "unreachable" {
			applied, lag = "", ""
		}
		t.Row(m.GetId(), m.GetAddress(), m.GetState(), voter, applied, lag, memberLevel(m), p.daysLeft(m.GetTlsNotAfter()), diskFree(m), m.GetVersion())
	}
	p.Table(t)
	for _, m := range s.GetMembers() {
		if x := m.GetHistoryImport(); x != nil {
			p.Line("%s imports the history of a backup: %s of %s jobs, all can be read", Clean(m.GetId()), Count(x.GetJobs()-min(x.GetJobs(), x.GetLeft())), Count(x.GetJobs()))
		}
	}
	p.QueueSummary(queues)
	p.alarms(s.GetAlarms())
}

// memberLevel is the highest feature level of a member's build; empty if it is unknown.
func memberLevel(m *dtaskv1.Member) string {
	if m.GetMaxLevel() == 0 {
		return ""
	}
	return fmt.Sprint(m.GetMaxLevel())
}

// daysLeft is how long a certificate is valid, in whole days; empty if that is unknown.
func (p *Printer) daysLeft(notAfter int64) string {
	if notAfter == 0 {
		return ""
	}
	left := time.UnixMilli(notAfter).Sub(p.now)
	if left <= 0 {
		return "expired"
	}
	return fmt.Sprintf("%dd", int(left/(24*time.Hour)))
}

// diskFree is the free space of a member's disk; empty if it is unknown.
func diskFree(m *dtaskv1.Member) string {
	if m.GetDiskSize() == 0 {
		return ""
	}
	return Size(m.GetDiskFree())
}

// alarms adds a section with what an operator must know; nothing without alarms.
func (p *Printer) alarms(alarms []*dtaskv1.Alarm) {
	if len(alarms) == 0 {
		return
	}
	p.Line("")
	p.Line("ALARMS")
	for _, a := range alarms {
		since := ""
		if a.GetSince() != nil {
			since = " since " + a.GetSince().AsTime().UTC().Format("2006-01-02 15:04:05 UTC") + " (" + p.ago(a.GetSince().AsTime().UnixMilli()) + ")"
		}
		p.Line("%s: %s%s", Clean(a.GetMember()), Clean(a.GetKind()), since)
		p.Line("  %s", Clean(a.GetMessage()))
	}
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
