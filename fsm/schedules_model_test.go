package fsm

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// modelSchedules are the schedules of the reference model.
type modelSchedules struct {
	list []*modelSchedule // by number
	next ScheduleID
}

// modelSchedule is a schedule with a whole copy of its job.
type modelSchedule struct {
	id              ScheduleID
	name, request   string
	version         uint32
	owner           IdentityID
	recurrence      string
	ordered         bool
	overlap         Overlap
	created, change int64
	paused          string // with the time and the reason; empty = not paused
	after, civil    int64
	last            int64
	outcomes        []ScheduleOutcome
	runs            []uint64
	form            modelJob
}

func (m *modelSchedules) find(id ScheduleID) *modelSchedule {
	for _, x := range m.list {
		if x.id == id {
			return x
		}
	}
	return nil
}

func (w *model) schedule(op Op) (r string, ok bool) {
	switch op := op.(type) {
	case *SetSchedule:
		return w.setSchedule(op), true
	case *DeleteSchedule:
		x := w.schedules.find(op.ID)
		switch {
		case x == nil:
			return "schedule not found", true
		case op.IfVersion != 0 && op.IfVersion != x.version:
			return "version mismatch", true
		}
		w.schedules.list = slices.DeleteFunc(w.schedules.list, func(y *modelSchedule) bool { return y == x })
		return "accepted", true
	case *PauseSchedule:
		x := w.schedules.find(op.ID)
		switch {
		case op.AtMS < 1 || len(op.Reason) > maxText:
			return "malformed", true
		case x == nil:
			return "schedule not found", true
		case x.paused == "":
			x.paused = fmt.Sprint(op.AtMS, op.By, op.Reason)
		}
		return "accepted", true
	case *ResumeSchedule:
		x := w.schedules.find(op.ID)
		switch {
		case op.AtMS < 1:
			return "malformed", true
		case x == nil:
			return "schedule not found", true
		case x.paused != "":
			x.paused, x.after = "", max(x.after, op.AtMS)
		}
		return "accepted", true
	case *Fire:
		return w.fire(op), true
	case *RunSchedule:
		return w.runSchedule(op), true
	}
	return "", false
}

// ownerProblem is why the owner of a schedule can't have runs.
func (w *model) ownerProblem(id IdentityID) string {
	switch i := w.access.identity(id); {
	case id == 0:
	case i == nil:
		return "identity not found"
	case i.RevokedMS != 0:
		return "identity revoked"
	}
	return ""
}

func (w *model) setSchedule(op *SetSchedule) string {
	j, r := w.upload(op.Upload)
	kinds := min(1, len(op.Cron)) + min(1, len(op.At))
	if op.EveryMS > 0 {
		kinds++
	}
	switch {
	case r != "":
		return r
	case len(j.tasks) != j.total:
		return "out of order"
	case !w.queues.has(j.queue):
		return "queue not found"
	case op.Sum != j.sum, j.tasks[0].final, len(j.header.GetNeeds()) > 0, badModelName(j.header.GetName()), badTimes(j.header), j.header.GetConcurrency() != nil && max(Overlap(j.header.GetConcurrency().GetOverlap()), 1) != op.Overlap:
		return "malformed"
	case kinds != 1, op.EveryMS < 0, op.Overlap > OverlapAllow, op.Missed > MissedSkip, (op.Missed == MissedSkip) != (op.WithinMS == 0), op.AtMS < 1:
		return "malformed"
	case !w.limits.has(j.header):
		return "limit not found"
	}
	if problem := w.ownerProblem(op.Owner); problem != "" {
		return problem
	}
	x := &modelSchedule{
		name: j.header.GetName(), version: 1, owner: op.Owner, recurrence: fmt.Sprint(op.Recurrence), ordered: op.Ordered, overlap: op.Overlap,
		created: op.AtMS, change: op.AtMS, after: op.AtMS, form: *j,
		request: fmt.Sprint(op.Digest, op.Recurrence, op.ScheduleRules, op.Owner, op.By),
	}
	at := slices.IndexFunc(w.schedules.list, func(y *modelSchedule) bool { return y.name == x.name })
	if at < 0 || w.schedules.list[at].request != x.request {
		if op.IfVersion != 0 && (at < 0 || w.schedules.list[at].version != op.IfVersion) {
			return "version mismatch"
		}
		if at < 0 {
			x.id = w.schedules.next
			w.schedules.next++
			w.schedules.list = append(w.schedules.list, x)
		} else {
			old := w.schedules.list[at]
			x.id, x.version, x.created, x.paused, x.outcomes, x.runs, x.last = old.id, old.version+1, old.created, old.paused, old.outcomes, old.runs, old.last
			x.after = max(old.after, op.AtMS)
			if old.recurrence == x.recurrence {
				x.civil = old.civil
			}
			w.schedules.list[at] = x
		}
	}
	delete(w.keys, j.key)
	delete(w.jobs, j.id)
	return "accepted"
}

func (w *model) fire(op *Fire) string {
	x := w.schedules.find(op.Schedule)
	switch {
	case op.Decision < TickRuns || op.Decision > TickSkippedMissed || op.TickMS < 1:
		return "malformed"
	case x == nil:
		return "schedule not found"
	case x.version != op.Version:
		return "version mismatch"
	case x.paused != "":
		return "schedule paused"
	case op.TickMS <= x.after, x.ordered && x.civil != 0 && op.Civil <= x.civil:
		return "tick was decided before"
	}
	if problem := w.ownerProblem(x.owner); problem != "" {
		return problem
	}
	o := ScheduleOutcome{TickMS: op.TickMS, AtMS: w.now, Decision: op.Decision, Earlier: op.Earlier}
	if op.Decision == TickRuns {
		id, ok := w.startRun(x, "", x.overlap)
		if !ok {
			return refusedKey
		}
		o.Job, x.last = JobID(id), op.TickMS
	}
	x.after, x.civil = op.TickMS, op.Civil
	x.note(o)
	return "accepted"
}

func (x *modelSchedule) note(o ScheduleOutcome) {
	if x.outcomes = append(slices.Clone(x.outcomes), o); len(x.outcomes) > 20 {
		x.outcomes = x.outcomes[1:]
	}
}

func (w *model) runSchedule(op *RunSchedule) string {
	x := w.schedules.find(op.Schedule)
	switch {
	case op.Key == "" || op.TickMS < 0:
		return "malformed"
	case x == nil:
		return "schedule not found"
	case w.keys[op.Key] != nil:
		return "idempotency key used for another request"
	}
	if problem := w.ownerProblem(x.owner); problem != "" {
		return problem
	}
	rule := x.overlap
	if op.TickMS > 0 && rule != OverlapAllow {
		rule = OverlapWaitAll
	}
	id, ok := w.startRun(x, op.Key, rule)
	if !ok {
		return refusedKey
	}
	w.keys[op.Key] = &modelKey{job: id, sealed: true, expires: op.KeyExpires, digest: op.Digest, version: 1}
	x.note(ScheduleOutcome{TickMS: op.TickMS, AtMS: w.now, Decision: TickRuns, Job: JobID(id), Manual: true})
	return "accepted"
}

// openRuns forgets the runs that have ended.
func (w *model) openRuns(runs []uint64) (open []uint64) {
	for _, id := range runs {
		if j := w.jobs[id]; j != nil && !j.hasEnded() {
			open = append(open, id)
		}
	}
	return open
}

// startRun starts a run unless an earlier one forbids it.
func (w *model) startRun(x *modelSchedule, key string, rule Overlap) (id uint64, ok bool) {
	h := proto.CloneOf(x.form.header)
	if h.GetConcurrency() == nil {
		h.Concurrency = &dtaskv1.JobConcurrency{Key: x.name, Overlap: dtaskv1.ScheduleOverlap(x.overlap)}
	}
	if !w.admits(h, rule, w.nextJob) {
		return 0, false
	}
	j := x.form
	j.id, j.key, j.state, j.submitted, j.version, j.tasks = w.nextJob, key, "pending", w.now, 1, nil
	for _, t := range x.form.tasks {
		fresh := *t
		j.tasks = append(j.tasks, &fresh)
	}
	if j.header = h; startsClosed(h) {
		j.gate = "closed"
	}
	w.nextJob++
	w.jobs[j.id] = &j
	w.seal = append(w.seal, fmt.Sprint(j.id))
	w.decide(&j)
	open := w.openRuns(x.runs)
	x.runs = append(slices.Clone(open[max(0, len(open)-99):]), j.id)
	return j.id, true
}

// compare returns the differences between a state and the reference model.
func (m *modelSchedules) compare(s *State) string {
	var got, want []string
	for x := range s.Schedules() {
		paused := ""
		if x.IsPaused() {
			paused = fmt.Sprint(x.PausedMS, x.PausedBy, x.PauseReason)
		}
		got = append(got, fmt.Sprintln(x.ID, x.Name, x.Version, x.Owner, x.Recurrence, x.Overlap, x.CreatedMS, x.ChangedMS, paused,
			x.AfterMS, x.LastCivil, x.LastRunMS, x.Outcomes, x.runs, x.Total()))
		if s.ScheduleByName("", x.Name) != x {
			return "schedule " + x.Name + " is not found by its name"
		}
	}
	for _, x := range m.list {
		want = append(want, fmt.Sprintln(x.id, x.name, x.version, x.owner, x.recurrence, x.overlap, x.created, x.change, x.paused,
			x.after, x.civil, x.last, x.outcomes, x.runs, x.form.total))
	}
	return cmp.Diff(want, got)
}
