package show

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Ticks adds the ticks of a schedule. A tick with several notes has a line for each.
func (p *Printer) Ticks(ticks []document.Tick) {
	t := NewTable("LOCAL", "UTC", "NOTE")
	for _, tick := range ticks {
		notes := strings.Split(tick.Note, "; ")
		t.Row(tick.Local, tick.At, notes[0])
		for _, note := range notes[1:] {
			t.Continue("", "", note)
		}
	}
	p.Table(t)
}

// Schedules adds a table of schedules. The time of the next tick is that of its zone.
func (p *Printer) Schedules(list []*dtaskv1.Schedule) {
	namespaces := false
	for _, x := range list {
		namespaces = namespaces || x.GetNamespace() != "default"
	}
	headings := []string{"NAME", "STATE", "WHEN", "NEXT", "LAST"}
	if namespaces {
		headings = append([]string{"NAMESPACE"}, headings...)
	}
	t := NewTable(headings...)
	for _, x := range list {
		next := ""
		if len(x.GetNext()) > 0 {
			next = x.GetNext()[0].GetLocal()
		}
		last := p.ago(x.GetLast().GetDecidedAt())
		if x.GetLast() != nil {
			last = outcome(x.GetLast()) + " " + last
		}
		cells := []string{x.GetName(), x.GetState(), recurrence(x.GetDefinition()), next, last}
		if namespaces {
			cells = append([]string{x.GetNamespace()}, cells...)
		}
		t.Row(cells...)
	}
	p.Table(t)
}

// Schedule adds a schedule: its definition, why its next tick is when it is, its next
// ticks, and what happened to the last ones.
func (p *Printer) Schedule(x *dtaskv1.Schedule) {
	p.Line("schedule %s (version %d): %s", p.bold(Clean(x.GetName())), x.GetVersion(), p.state(x.GetState()))
	d := x.GetDefinition()
	p.field("namespace", x.GetNamespace())
	p.field("owner", x.GetOwner())
	p.field("set", strings.TrimSpace(p.ago(x.GetChangedAt())+by(x.GetSetBy())))
	p.field("tasks", fmt.Sprint(x.GetTasks()))
	p.definition(d)
	p.field("overlap", document.ScheduleOverlap(d.GetOverlap()))
	missed := document.ScheduleMissed(d.GetMissed())
	if d.GetMissedWithinMs() > 0 {
		missed += " within " + wholeDuration(d.GetMissedWithinMs())
	}
	p.field("missed", missed)
	if x.GetPausedAt() != 0 {
		p.field("paused", p.ago(x.GetPausedAt())+by(x.GetPausedBy())+reason(x.GetPauseReason()))
	}
	name := "why"
	for _, reason := range x.GetWhy() {
		for _, line := range wrapped(reason) {
			p.Line("  %-10s %s", name, Clean(line))
			name = ""
		}
	}
	p.NextTicks(x.GetNext())
	p.outcomes(x.GetOutcomes())
}

// maxReason is the longest line of a reason, so that it fits into 100 columns.
const maxReason = 87

// wrapped breaks a text between words. Lines but the first are indented.
func wrapped(text string) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > maxReason:
			lines, line = append(lines, line), "  "+word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// definition adds when a schedule fires, with all of its expressions.
func (p *Printer) definition(d *dtaskv1.ScheduleDefinition) {
	for _, e := range d.GetCron() {
		p.field("cron", e)
	}
	if d.GetEveryMs() > 0 {
		p.field("every", wholeDuration(d.GetEveryMs()))
	}
	p.field("at", someOf(d.GetAt()))
	p.field("timezone", d.GetTimezone())
	if d.GetGap() == dtaskv1.ScheduleGap_SCHEDULE_GAP_SKIP || d.GetRepeat() == dtaskv1.ScheduleRepeat_SCHEDULE_REPEAT_TWICE {
		doc := document.NewSchedule(&dtaskv1.Schedule{Definition: d}).Definition
		p.field("dst", "gap: "+doc.Gap+", repeat: "+doc.Repeat)
	}
	if d.GetJitterMs() > 0 {
		p.field("jitter", "up to "+wholeDuration(d.GetJitterMs()))
	}
	p.field("from", d.GetFrom())
	p.field("until", d.GetUntil())
	p.field("except", someOf(d.GetExcept()))
}

// maxShownTimes is how many times of a list are shown.
const maxShownTimes = 5

// someOf joins the first texts of a list.
func someOf(list []string) string {
	if len(list) <= maxShownTimes {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:maxShownTimes], ", ") + fmt.Sprintf(" and %d more", len(list)-maxShownTimes)
}

// wholeDuration formats a duration as job files write it, without units that are zero.
func wholeDuration(ms int64) string {
	text := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// maxRecurrence is the width of the column with the recurrence, in characters.
const maxRecurrence = 34

// recurrence describes when a schedule fires, shortened to fit into a table.
func recurrence(d *dtaskv1.ScheduleDefinition) string {
	text := ""
	switch {
	case d.GetEveryMs() > 0:
		return "every " + wholeDuration(d.GetEveryMs())
	case len(d.GetCron()) > 0:
		text = d.GetCron()[0]
		if more := len(d.GetCron()) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	case len(d.GetAt()) > 0:
		text = "at " + d.GetAt()[0]
		if more := len(d.GetAt()) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if d.GetTimezone() != "" {
		text += " " + d.GetTimezone()
	}
	if short := []rune(text); len(short) > maxRecurrence {
		text = string(short[:maxRecurrence-1]) + "…"
	}
	return text
}

// NextTicks adds the next ticks of a schedule of a cluster, if there are any.
func (p *Printer) NextTicks(ticks []*dtaskv1.ScheduleTick) {
	if len(ticks) == 0 {
		return
	}
	p.Line("")
	t := NewTable("NEXT", "IN", "NOTE")
	for _, tick := range ticks {
		in := "now"
		if left := time.UnixMilli(tick.GetStartAt()).Sub(p.now); left > 0 {
			in = Duration(left)
		}
		notes := strings.Split(tick.GetNote(), "; ")
		t.Row(tick.GetLocal(), in, notes[0])
		for _, note := range notes[1:] {
			t.Continue("", "", note)
		}
	}
	p.Table(t)
}

// outcomes adds what happened to ticks, the newest first.
func (p *Printer) outcomes(list []*dtaskv1.ScheduleOutcome) {
	if len(list) == 0 {
		return
	}
	p.Line("")
	t := NewTable("TICK", "DECIDED", "OUTCOME", "JOB", "STATE", "NOTE")
	for _, o := range list {
		tick, state, note := "", "", ""
		if o.GetTickAt() != 0 {
			tick = absolute(o.GetTickAt())
		}
		switch {
		case o.GetState() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED:
			state = document.JobState(o.GetState())
		case o.GetJob() != "":
			state = "expired"
		}
		switch {
		case o.GetManual() && o.GetTickAt() != 0:
			note = "backfill"
		case o.GetManual():
			note = "started by a user"
		case o.GetEarlier() > 0:
			note = Plural(o.GetEarlier(), "missed tick") + " before it skipped"
		}
		t.Row(tick, p.ago(o.GetDecidedAt()), outcome(o), o.GetJob(), state, note)
	}
	p.Table(t)
}

// outcome describes a decision in a few words.
func outcome(o *dtaskv1.ScheduleOutcome) string {
	switch o.GetDecision() {
	case dtaskv1.ScheduleDecision_SCHEDULE_DECISION_RAN:
		return "ran"
	case dtaskv1.ScheduleDecision_SCHEDULE_DECISION_SKIPPED_OPEN:
		return "skipped: overlap"
	case dtaskv1.ScheduleDecision_SCHEDULE_DECISION_SKIPPED_MISSED:
		return "skipped: missed"
	case dtaskv1.ScheduleDecision_SCHEDULE_DECISION_UNSPECIFIED:
	}
	return "unknown"
}

// Backfill adds the runs of a backfill.
func (p *Printer) Backfill(runs []*dtaskv1.BackfilledRun) {
	t := NewTable("TICK", "JOB", "NOTE")
	for _, r := range runs {
		note := ""
		if r.GetExisted() {
			note = "started earlier with this key"
		}
		t.Row(absolute(r.GetTickAt()), r.GetJob(), note)
	}
	p.Table(t)
}

// scheduledRun describes the run of a schedule that a job is; empty if it is not one.
func scheduledRun(r *dtaskv1.ScheduledRun) string {
	switch {
	case r == nil:
		return ""
	case r.GetTickMs() != 0 && r.GetRerunOf() != 0:
		return fmt.Sprintf("%s, tick %s, a rerun of job %d", r.GetSchedule(), absolute(r.GetTickMs()), r.GetRerunOf())
	case r.GetTickMs() == 0:
		return r.GetSchedule() + ", started by a user"
	case r.GetManual():
		return r.GetSchedule() + ", backfill of the tick " + absolute(r.GetTickMs())
	}
	return r.GetSchedule() + ", tick " + absolute(r.GetTickMs())
}
