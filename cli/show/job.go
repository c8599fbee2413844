package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Jobs adds a table of jobs.
func (p *Printer) Jobs(jobs []*dtaskv1.Job) {
	t := NewTable("ID", "NAME", "STATE", "TASKS", "FAILED", "PRIORITY", "OWNER", "SUBMITTED",
		"TOOK")
	for _, j := range jobs {
		t.Row(j.GetId(), j.GetName(), jobState(j),
			Count(j.GetTasksCompleted())+"/"+Count(j.GetTasksTotal()),
			Count(j.GetTasksFailed()), document.Priority(j.GetPriority()), j.GetOwner(),
			p.ago(j.GetSubmittedAt()), p.took(j.GetStartedAt(), j.GetCompletedAt()))
	}
	p.Table(t)
}

// Job adds a job without its tasks.
func (p *Printer) Job(j *dtaskv1.Job) {
	p.Line("%s  %s  %s", p.bold("job "+j.GetId()), Clean(j.GetName()),
		p.state(document.JobState(j.GetState())))
	p.field("owner", j.GetOwner())
	p.field("namespace", j.GetNamespace())
	p.field("queue", j.GetQueue())
	p.field("priority", document.Priority(j.GetPriority()))
	p.field("labels", formatLabels(j.GetLabels()))
	p.field("params", Params(j.GetParams()))
	p.field("schedule", scheduledRun(j.GetRun()))
	p.field("needs", NeededJobs(j.GetNeeds()))
	if j.GetWaiting() {
		p.field("waits for", OpenNeeds(j.GetNeeds()))
	}
	p.field("gate", Gate(j))
	p.field("submitted", p.ago(j.GetSubmittedAt()))
	p.field("took", p.took(j.GetStartedAt(), j.GetCompletedAt()))
	p.field("tasks", completedOf(j)+detailSuffix(j, 0))
	if j.GetOutcome() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		p.field("outcome", document.JobState(j.GetOutcome())+", cleanup tasks are running")
	}
	if n := j.GetFailuresTolerated(); n > 0 {
		p.field("tolerated", fmt.Sprintf("%s of at most %s", Plural(n, "failure"), Count(j.GetMaxFailures())))
	}
	p.field("retries", Count(j.GetRetries()))
	if len(j.GetLevels()) > 0 {
		p.field("levels", Levels(j.GetLevels()))
	}
	if j.GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		p.field("note", j.GetError())
	} else {
		p.field("error", j.GetError())
	}
	p.Line("")
}

// jobState is the state of a job, with what keeps it from starting.
func jobState(j *dtaskv1.Job) string {
	state := document.JobState(j.GetState())
	if text := Gate(j); text != "" {
		return state + " (" + text + ")"
	}
	return state
}

// maxWaitsFor is how many of the jobs that a job waits for are named.
const maxWaitsFor = 3

// Gate is what keeps a job from starting: "scheduled until 2026-12-25T08:00:00Z" or "waits for
// 41, 42"; empty if nothing does.
func Gate(j *dtaskv1.Job) string {
	ids := j.GetWaitsFor()
	switch more := len(ids) - maxWaitsFor; {
	case more > 0:
		return fmt.Sprintf("waits for %s and %d more", strings.Join(ids[:maxWaitsFor], ", "), more)
	case len(ids) > 0:
		return "waits for " + strings.Join(ids, ", ")
	case j.GetScheduledUntil() == 0:
		return ""
	}
	return "scheduled until " + time.UnixMilli(j.GetScheduledUntil()).UTC().Format(time.RFC3339)
}

// NeededJobs names the jobs that a job needs, and how they ended: "job 42 (failed), job
// 43 when ended".
func NeededJobs(needs []*dtaskv1.JobNeed) string {
	parts := make([]string, len(needs))
	for i, n := range needs {
		parts[i] = "job " + strconv.FormatUint(n.GetJob(), 10)
		if n.GetCondition() > dtaskv1.Condition_CONDITION_COMPLETED {
			parts[i] += " when " + document.Condition(n.GetCondition())
		}
		if n.GetEndedAs() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
			parts[i] += " (" + document.JobState(n.GetEndedAs()) + ")"
		}
	}
	return strings.Join(parts, ", ")
}

// OpenNeeds names the needed jobs that have not ended.
func OpenNeeds(needs []*dtaskv1.JobNeed) string {
	return NeededJobs(slices.DeleteFunc(slices.Clone(needs), func(n *dtaskv1.JobNeed) bool {
		return n.GetEndedAs() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED
	}))
}

// SkippedJob returns why a job completed without running anything: it waited for the
// failure of another job, which completed. It returns "" for other jobs.
func SkippedJob(j *dtaskv1.Job) string {
	if j.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED || !statetext.Skipped(j.GetError()) {
		return ""
	}
	return j.GetError()
}

// JobDetail returns how many tasks are in the states of interest: "16 running, 1
// scheduled".
func JobDetail(j *dtaskv1.Job) string { return stateCounts(j, 0) }

// stateCounts is JobDetail of a job of whose cancelled tasks some are known to be skipped.
// All are if the job was skipped.
func stateCounts(j *dtaskv1.Job, skipped uint32) string {
	var parts []string
	add := func(n uint32, state string) {
		if n > 0 {
			parts = append(parts, Count(n)+" "+state)
		}
	}
	counts := j.GetTasksByState()
	for _, state := range []string{"running", "assigned", "scheduled", "failed", "dead", "lost"} {
		add(counts[state], state)
	}
	skipped = min(skipped, counts["cancelled"])
	if SkippedJob(j) != "" {
		skipped = counts["cancelled"]
	}
	add(counts["cancelled"]-skipped, "cancelled")
	add(skipped, "skipped")
	return strings.Join(parts, ", ")
}

// detailSuffix is stateCounts as the end of a sentence.
func detailSuffix(j *dtaskv1.Job, skipped uint32) string {
	if detail := stateCounts(j, skipped); detail != "" {
		return ", " + detail
	}
	return ""
}

func completedOf(j *dtaskv1.Job) string {
	return fmt.Sprintf("%s of %s completed", Count(j.GetTasksCompleted()),
		Count(j.GetTasksTotal()))
}

// Finished describes a finished job in one line.
func Finished(j *dtaskv1.Job) string { return finished(j, 0) }

// finished is Finished of a job of which some tasks are known to be skipped.
func finished(j *dtaskv1.Job, skipped uint32) string {
	took := time.Duration(max(j.GetCompletedAt()-j.GetSubmittedAt(), 0)) * time.Millisecond
	return fmt.Sprintf("job %s (%s) %s in %s: %s of %s completed%s", j.GetId(), Clean(j.GetName()),
		document.JobState(j.GetState()), Duration(took), Count(j.GetTasksCompleted()),
		Plural(j.GetTasksTotal(), "task"), detailSuffix(j, skipped))
}

// Retried describes a job after a retry, which may have finished since.
func Retried(j *dtaskv1.Job) string {
	what := "resumed"
	switch state := j.GetState(); state { //nolint:exhaustive // only final states
	case dtaskv1.JobState_JOB_STATE_COMPLETED, dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED:
		what = "resumed and " + document.JobState(state)
	}
	return fmt.Sprintf("job %s (%s) %s: %s of %s completed%s", j.GetId(), Clean(j.GetName()),
		what,
		Count(j.GetTasksCompleted()), Plural(j.GetTasksTotal(), "task"), detailSuffix(j, 0))
}

// Change adds one step of a watch: the changed tasks and then the job. If the step
// has the whole job, the job alone shows its state.
func (p *Printer) Change(index uint64, whole bool, j *dtaskv1.Job, tasks []*dtaskv1.Task) {
	line := func(name, state, detail string) {
		text := fmt.Sprintf("%d  %s  %s  %s", index, Clean(name), p.state(state), Clean(detail))
		p.Line("%s", strings.TrimRight(text, " "))
	}
	for _, t := range tasks {
		if whole {
			break
		}
		detail := t.GetError()
		if w := t.GetWorker(); w != "" {
			detail = strings.TrimSuffix(fmt.Sprintf("attempt %d on %s: %s", t.GetAttempt(), w,
				t.GetError()), ": ")
		}
		line(j.GetId()+"/"+t.GetId(), document.TaskState(t.GetState()), detail)
	}
	detail := completedOf(j)
	if n := j.GetTasksFailed(); n > 0 {
		detail += fmt.Sprintf(", %s failed", Count(n))
	}
	if j.GetError() != "" {
		detail += ": " + j.GetError()
	}
	line(j.GetId(), document.JobState(j.GetState()), detail)
}
