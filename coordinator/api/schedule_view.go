package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/calendar"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// scheduleView shows a schedule of a state. Its ticks are computed by the time zones of
// this replica, as the leader computes them by its own.
type scheduleView struct {
	*Server
	st       *fsm.State
	schedule *fsm.Schedule
	calendar *calendar.Schedule // nil: invalid in this version
	held     string             // why it does not fire, unless it is paused; empty = it fires
}

// viewSchedule returns the view of a schedule.
func (s *Server) viewSchedule(st *fsm.State, x *fsm.Schedule) *scheduleView {
	v := &scheduleView{Server: s, st: st, schedule: x}
	var err error
	v.calendar, err = sequencer.Calendar(x.Name, &x.Recurrence)
	switch leader := s.cfg.Leader(); {
	case err != nil:
		v.held = fmt.Sprintf("this version of dtask cannot evaluate it: %v; set it again", err)
	case !st.OwnerLives(x):
		v.held = ownerGone(x) + "; set it again, as another identity"
	case leader != nil && !leader.ClockAgrees():
		v.held = "the wall clock of the leader is not confirmed by a majority: nothing fires, and the ticks are missed ones"
	}
	return v
}

// ownerGone states that the identity that set a schedule has no access any more.
func ownerGone(x *fsm.Schedule) string {
	return fmt.Sprintf("the identity %s, which set it, was revoked", quote(x.By))
}

// show shows the schedule with up to n of its next ticks.
func (v *scheduleView) show(n int) *dtaskv1.Schedule {
	x := v.schedule
	shown := &dtaskv1.Schedule{
		Name: x.Name, Namespace: scheduleSpace(x), Version: x.Version, SetBy: x.By, Owner: x.Header().GetOwner(), Tasks: x.Total(),
		Definition: definitionOf(x), CreatedAt: x.CreatedMS, ChangedAt: x.ChangedMS,
		PausedAt: x.PausedMS, PausedBy: x.PausedBy, PauseReason: x.PauseReason,
	}
	for _, id := range v.st.OpenRuns(x) {
		shown.OpenJobs = append(shown.OpenJobs, formatJobID(id))
	}
	if len(x.Outcomes) > 0 {
		shown.Last = outcomeOf(&x.Outcomes[len(x.Outcomes)-1])
	}
	ticks := v.ticks(n)
	switch {
	case x.IsPaused():
		shown.State = "paused"
	case v.held != "":
		shown.State = "held"
	case len(ticks) == 0:
		shown.State = "ended"
	default:
		shown.State = "active"
		for _, t := range ticks {
			shown.Next = append(shown.Next, &dtaskv1.ScheduleTick{
				At: t.At.UnixMilli(), Local: t.At.Format(time.RFC3339), StartAt: t.Start.UnixMilli(), Note: t.Note,
			})
		}
	}
	shown.Why = v.why(ticks)
	return shown
}

// ticks returns up to n ticks that are not decided, as if nothing held the schedule.
func (v *scheduleView) ticks(n int) []calendar.Tick {
	if v.calendar == nil {
		return nil
	}
	after := time.UnixMilli(v.schedule.AfterMS)
	if v.schedule.IsPaused() {
		after = v.cfg.Wall()
	}
	for t, ok := v.calendar.Next(after); ok && sequencer.IsPast(v.schedule, t); t, ok = v.calendar.Next(after) {
		after = t.At
	}
	return v.calendar.Preview(after, n)
}

// why explains why the next tick is when it is, or why nothing fires.
func (v *scheduleView) why(ticks []calendar.Tick) []string {
	x := v.schedule
	var why []string
	switch {
	case x.IsPaused():
		text := "it is paused since " + v.local(x.PausedMS)
		if x.PausedBy != "" {
			text += " by " + x.PausedBy
		}
		if x.PauseReason != "" {
			text += ": " + x.PauseReason
		}
		why = append(why, text, "ticks while it is paused do not fire later, and are not missed")
	case v.held != "":
	case len(ticks) == 0:
		why = append(why, fmt.Sprintf("it has ended: %s has no tick after %s", describeRecurrence(&x.Recurrence), v.local(x.AfterMS)))
	default:
		why = append(why, fmt.Sprintf("the first tick of %s after %s, %s", describeRecurrence(&x.Recurrence), v.local(x.AfterMS), v.since()))
		why = append(why, v.timing(&ticks[0])...)
	}
	if v.held != "" {
		why = append(why, v.held)
	}
	return append(why, v.overlap()...)
}

// since tells what the ticks are after.
func (v *scheduleView) since() string {
	x := v.schedule
	if x.LastRunMS == x.AfterMS { // runs by hand may have replaced its outcome
		return "the last tick that was decided"
	}
	for _, o := range slices.Backward(x.Outcomes) {
		if !o.Manual && o.TickMS == x.AfterMS {
			return "the last tick that was decided"
		}
	}
	if x.AfterMS == x.ChangedMS {
		return "when it was set"
	}
	return "when it was resumed"
}

// timing explains why a tick starts later than at its time.
func (v *scheduleView) timing(t *calendar.Tick) []string {
	var why []string
	if jitter := t.Start.Sub(t.At); jitter > 0 {
		why = append(why, fmt.Sprintf("its jitter of up to %s delays the start by %s: the name and the tick decide it", wholeDuration(v.calendar.Jitter()), jitter))
	}
	switch late := v.cfg.Wall().Sub(t.Start); {
	case late > sequencer.LateAfter && v.schedule.Missed != fsm.MissedSkip:
		why = append(why, fmt.Sprintf("it is %s overdue, and so a missed tick: those of all schedules start at 20 per second, and none while the leader has no capacity for its tasks", late.Round(time.Second)))
	case late > time.Second:
		why = append(why, fmt.Sprintf("it is %s overdue: the leader has no capacity for its tasks, or has just begun its term", late.Round(time.Second)))
	}
	return why
}

// overlap explains what open runs do to the next one. With a concurrency key of the job, all jobs
// that have the key count, and more than one may run.
func (v *scheduleView) overlap() []string {
	x, header, of := v.schedule, v.schedule.RunHeader(), "runs"
	open, limit := v.st.OpenRuns(x), fsm.ConcurrencyLimit(header)
	if c := x.Header().GetConcurrency(); c != nil && x.Overlap != fsm.OverlapAllow {
		open, of = v.st.KeyJobs(fsm.ConcurrencyKey(header)), "jobs with the concurrency key "+quote(c.GetKey())
	}
	if len(open) == 0 {
		return nil
	}
	text, has := "job "+formatJobID(open[0]), " has not ended: "
	if len(open) > 1 {
		text, has = fmt.Sprintf("%d %s, the oldest of which is %s", len(open), of, text), ", have not ended: "
	}
	if x.Overlap != fsm.OverlapAllow && len(open) < limit {
		return []string{fmt.Sprintf("%s%sthe next run starts all the same, because %d may run", text, has, limit)}
	}
	runs := map[fsm.Overlap]string{
		fsm.OverlapSkip: "a tick that is due before its end is skipped", fsm.OverlapWait: "one more run may wait, and others are skipped",
		fsm.OverlapWaitAll: fmt.Sprintf("the next runs wait, at most %d are open", fsm.MostKeyJobs(header)),
		fsm.OverlapReplace: "the next run cancels it", fsm.OverlapAllow: "the next run starts all the same",
	}
	return []string{text + has + runs[x.Overlap] + " (overlap: " + overlapName(x.Overlap) + ")"}
}

// local returns a time in the zone of the schedule.
func (v *scheduleView) local(ms int64) string {
	at := time.UnixMilli(ms).UTC()
	if v.calendar != nil {
		at = at.In(v.calendar.Zone())
	}
	return at.Format(time.RFC3339)
}

// describeRecurrence names when a schedule fires, as it was written.
func describeRecurrence(r *fsm.Recurrence) string {
	var text string
	switch {
	case r.EveryMS > 0:
		return "every " + wholeDuration(time.Duration(r.EveryMS)*time.Millisecond)
	case len(r.Cron) == 1:
		text = fmt.Sprintf("cron %q", r.Cron[0])
	case len(r.Cron) > 1:
		text = fmt.Sprintf("cron %q and %d more", r.Cron[0], len(r.Cron)-1)
	case len(r.At) == 1:
		text = "at " + r.At[0]
	default:
		text = fmt.Sprintf("at %s and %d more", r.At[0], len(r.At)-1)
	}
	if r.Zone != "" && !strings.HasSuffix(text, "Z") {
		text += " in " + r.Zone
	}
	return text
}

// wholeDuration formats a duration without units that are zero.
func wholeDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// overlapName returns the rule for overlaps as job files write it.
func overlapName(o fsm.Overlap) string {
	return map[fsm.Overlap]string{
		fsm.OverlapSkip: "skip", fsm.OverlapWait: "wait", fsm.OverlapWaitAll: "wait-all", fsm.OverlapReplace: "replace", fsm.OverlapAllow: "allow",
	}[o]
}

// outcomes shows what happened, the newest first, with the states of the jobs.
func (v *scheduleView) outcomes() ([]*dtaskv1.ScheduleOutcome, error) {
	var list []*dtaskv1.ScheduleOutcome
	for _, o := range slices.Backward(v.schedule.Outcomes) {
		shown := outcomeOf(&o)
		if o.Job != 0 {
			state, err := v.jobState(o.Job)
			if err != nil {
				return nil, err
			}
			shown.State = state
		}
		list = append(list, shown)
	}
	return list, nil
}

// jobState returns the state of a job; unspecified if it has expired, or if this replica
// lacks its history.
func (v *scheduleView) jobState(id fsm.JobID) (dtaskv1.JobState, error) {
	if job, ok := v.st.Job(id); ok {
		return fsm.ProtoJobState(job.State), nil
	}
	head, ok, err := v.archivedJob(id)
	if err != nil || !ok {
		return dtaskv1.JobState_JOB_STATE_UNSPECIFIED, err
	}
	return fsm.ProtoJobState(head.State), nil
}

// outcomeOf shows what happened to a tick, without the state of its job.
func outcomeOf(o *fsm.ScheduleOutcome) *dtaskv1.ScheduleOutcome {
	shown := &dtaskv1.ScheduleOutcome{
		TickAt: o.TickMS, DecidedAt: o.AtMS, Decision: dtaskv1.ScheduleDecision(o.Decision), Manual: o.Manual, Earlier: o.Earlier,
	}
	if o.Job != 0 {
		shown.Job = formatJobID(o.Job)
	}
	return shown
}

// definitionOf returns a definition as it was sent, with defaults filled in.
func definitionOf(x *fsm.Schedule) *dtaskv1.ScheduleDefinition {
	r := &x.Recurrence
	return &dtaskv1.ScheduleDefinition{
		Cron: r.Cron, EveryMs: r.EveryMS, At: r.At, Timezone: r.Zone,
		Gap: max(dtaskv1.ScheduleGap(r.Gap), dtaskv1.ScheduleGap_SCHEDULE_GAP_RUN_AFTER), Repeat: max(dtaskv1.ScheduleRepeat(r.Repeat), dtaskv1.ScheduleRepeat_SCHEDULE_REPEAT_ONCE),
		JitterMs: r.JitterMS, From: r.From, Until: r.Until, Except: r.Except,
		Overlap: dtaskv1.ScheduleOverlap(x.Overlap), Missed: dtaskv1.ScheduleMissed(x.Missed), MissedWithinMs: x.WithinMS,
	}
}
