package fsm

import (
	"fmt"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (w *model) sealed(id JobID) *modelJob {
	if j := w.jobs[uint64(id)]; j != nil && j.state != "uploading" {
		return j
	}
	return nil
}

func (j *modelJob) hasEnded() bool {
	return j.state == "completed" || j.state == "failed" || j.state == "cancelled"
}

func (t *modelTask) hasEnded() bool {
	switch t.state {
	case "completed", "failed", "cancelled", "dead", "lost":
		return true
	}
	return false
}

// task returns a task of an existing job.
func (w *model) task(ref TaskRef) (*modelJob, *modelTask, string) {
	j := w.sealed(ref.Job)
	switch {
	case j == nil:
		return nil, nil, "job not found"
	case int(ref.Index) >= len(j.tasks):
		return nil, nil, "task not found"
	}
	return j, j.tasks[ref.Index], ""
}

func (w *model) assign(it AssignItem) string {
	j, t, r := w.task(it.TaskRef)
	if r != "" {
		return r
	}
	x := w.workers[uint32(it.Worker)]
	switch {
	case x == nil || x.State != WorkerUp:
		return "worker not found"
	case t.state != "pending" || x.DrainUntil != 0:
		return "wrong state"
	case it.Attempt != t.attempt+1:
		return "stale attempt"
	}
	t.state, t.attempt, t.worker, t.begun, t.alternative = "assigned", it.Attempt, uint32(it.Worker), false, 0
	t.started = w.now
	if j.state == "pending" {
		j.state, j.started = "running", w.now
	}
	return "accepted"
}

func (w *model) assignAlternative(it AlternativeItem) string {
	j, t, r := w.task(it.TaskRef)
	if r != "" {
		return r
	}
	if it.Alternative == 0 || int(it.Alternative) > len(j.policies[t.policy].GetAlternatives()) {
		return "malformed"
	}
	if r = w.assign(AssignItem(it.HeldAttempt)); r == "accepted" {
		t.alternative = it.Alternative
	}
	return r
}

// live returns the task of a live attempt.
func (w *model) live(h HeldAttempt) (*modelJob, *modelTask, string) {
	j, t, r := w.task(h.TaskRef)
	switch {
	case r != "":
		return nil, nil, r
	case t.attempt != h.Attempt || t.worker != uint32(h.Worker):
		return nil, nil, "stale attempt"
	case t.state == "completed":
		return nil, nil, "already accepted"
	case t.state != "assigned":
		return nil, nil, "stale attempt"
	}
	return j, t, ""
}

func (w *model) begin(h HeldAttempt) string {
	j, t, r := w.live(h)
	switch {
	case r != "":
		return r
	case j.policies[t.policy].GetExecution() != dtaskv1.Execution_EXECUTION_AT_MOST_ONCE:
		return "wrong state"
	}
	if !t.begun {
		t.begun, t.started = true, w.now
	}
	return "accepted"
}

func (w *model) complete(it CompleteItem) string {
	j, t, r := w.live(it.HeldAttempt)
	switch {
	case r != "":
		return r
	case len(it.Result) > maxResult:
		return "malformed"
	case len(it.OutputSHA256) != 0 && len(it.OutputSHA256) != 32:
		return "malformed"
	}
	w.count("task completed")
	t.state, t.ended, t.started, t.err = "completed", w.now, w.now-int64(it.DurationMS), ""
	t.result, t.outSHA, t.outSize = string(it.Result), string(it.OutputSHA256), 0
	if len(it.OutputSHA256) > 0 {
		t.outSize = it.OutputSize
	}
	t.accepted++
	w.follow(j)
	w.settle(j)
	return "accepted"
}

func (w *model) fail(it FailItem) string {
	j, t, r := w.live(it.HeldAttempt)
	switch {
	case r != "":
		return r
	case it.Next < 1 || it.Next > 3 || len(it.Error) > maxText:
		return "malformed"
	case it.Next == NextRetry && (j.stopsNow(t) || t.begun):
		return "wrong state"
	}
	t.started = w.now - int64(it.DurationMS)
	w.remember(t, it.Error)
	switch it.Next {
	case NextRetry:
		t.state, t.due, t.err, t.ended = "scheduled", it.Due, it.Error, 0
		j.retries++
		if it.CountsAsRetry {
			t.failures++
		}
		w.sched = append(w.sched, fmt.Sprintf("%v due %d", it.AttemptRef, it.Due))
	case NextDead:
		w.failed(j, t, "dead", it.Error)
	case NextFailed:
		w.failed(j, t, "failed", it.Error)
	}
	return "accepted"
}

func (w *model) requeue(h HeldAttempt, lost bool) string {
	j, t, r := w.live(h)
	switch {
	case r != "":
		return r
	case t.begun:
		return "wrong state"
	}
	if lost {
		t.err = "worker marked down while the attempt ran"
		w.remember(t, t.err)
	}
	if j.stopsNow(t) {
		w.end(t, "cancelled", "job stopped")
		w.follow(j)
		w.settle(j)
		return "accepted"
	}
	t.state = "pending"
	if lost {
		t.losses++
		j.retries++
	} else {
		j.requeues++
	}
	w.ready = append(w.ready, fmt.Sprintf("%d/%d", h.Job, h.Index))
	return "accepted"
}

func (w *model) lose(h HeldAttempt) string {
	j, t, r := w.live(h)
	switch {
	case r != "":
		return r
	case !t.begun:
		return "wrong state"
	}
	w.remember(t, "worker marked down, outcome of the attempt unknown")
	w.failed(j, t, "lost", "worker marked down, outcome of the attempt unknown")
	return "accepted"
}

func (w *model) dueNow(it AttemptRef) string {
	_, t, r := w.task(it.TaskRef)
	switch {
	case r != "":
		return r
	case t.state != "scheduled":
		return "wrong state"
	case t.attempt != it.Attempt:
		return "stale attempt"
	}
	t.state, t.ended = "pending", 0
	w.ready = append(w.ready, fmt.Sprintf("%d/%d", it.Job, it.Index))
	return "accepted"
}

func (w *model) end(t *modelTask, state, why string) {
	w.count("task " + state)
	t.state, t.ended, t.err = state, w.now, why
}

// failed ends a task that failed, and everything that ends because of it.
func (w *model) failed(j *modelJob, t *modelTask, state, why string) {
	w.end(t, state, why)
	if state == "dead" {
		w.dead = append(w.dead, fmt.Sprintf("%d/%d", j.id, slices.Index(j.tasks, t)))
	}
	many := j.failures() > j.maxFailures
	if j.err == "" && (t.final || many) {
		j.err = j.failureOf(t, why)
	}
	w.follow(j)
	if j.stops && !j.stopping && !t.final && many {
		j.stopping = true
		for _, x := range j.tasks {
			if !x.hasEnded() && x.state != "assigned" && j.stopsNow(x) {
				w.end(x, "cancelled", "job stopped: task "+t.name+" failed")
			}
		}
		w.follow(j)
	}
	w.settle(j)
}

// failures counts the ordinary tasks that failed permanently.
func (j *modelJob) failures() int {
	n := 0
	for _, t := range j.tasks {
		if !t.final && (t.state == "failed" || t.state == "dead" || t.state == "lost") {
			n++
		}
	}
	return n
}

func (j *modelJob) failureOf(t *modelTask, why string) string {
	text := fmt.Sprintf("task %s %s: %s", t.name, t.state, why)
	switch {
	case t.final:
		return "cleanup " + text
	case j.maxFailures > 0:
		return fmt.Sprintf("%d tasks failed, more than %d: %s", j.failures(), j.maxFailures, text)
	}
	return text
}

// parts returns the ordinary tasks of a job and its cleanup tasks.
func (j *modelJob) parts() (ordinary, finals []*modelTask) {
	for _, t := range j.tasks {
		if t.final {
			finals = append(finals, t)
		} else {
			ordinary = append(ordinary, t)
		}
	}
	return ordinary, finals
}

func (w *model) settle(j *modelJob) {
	ordinary, finals := j.parts()
	if j.outcome == "" {
		if j.outcome = j.outcomeOf(ordinary, j.maxFailures); j.outcome == "" {
			return
		}
		if list := j.uncovered(ordinary); j.outcome == "failed" && j.err == "" && len(list) > 0 {
			j.errOf = list[:1]
		}
		w.makeReady(j)
	}
	cleaned := j.outcomeOf(finals, 0)
	switch {
	case cleaned == "":
	case j.outcome != "completed":
		w.close(j, j.outcome)
	default:
		w.close(j, cleaned)
	}
}

func (w *model) close(j *modelJob, state string) {
	w.count("job " + state)
	j.state, j.ended = state, w.now
	if ordinary, _ := j.parts(); state == "completed" {
		j.errOf = j.cancelledBecause(ordinary)
	}
	w.endedJobs = append(w.endedJobs, fmt.Sprint(j.id))
	if j.webhook != "" {
		w.queueNotification(map[string]NotificationKind{"completed": JobCompletedNotification, "failed": JobFailedNotification, "cancelled": JobCancelledNotification}[state], j.id, 0)
	}
	w.tellEnd(j)
}

func (w *model) endJob(id JobID, state, why string, now bool) string {
	j := w.sealed(id)
	switch {
	case j == nil:
		return "job not found"
	case j.hasEnded():
		return "already ended"
	case j.outcome != "" && !now:
		return "already ended"
	case len(why) > maxText:
		return "malformed"
	}
	_, finals := j.parts()
	broken := false
	for _, t := range finals {
		broken = broken || t.hasEnded() && t.state != "completed" && t.state != "cancelled"
	}
	for i, t := range j.tasks {
		if t.final && !now {
			continue
		}
		if t.state == "assigned" {
			w.ends = append(w.ends, fmt.Sprintf("%d/%d@%d by %d", id, i, t.attempt, t.worker))
		}
		if !t.hasEnded() {
			w.end(t, "cancelled", why)
		}
	}
	if j.outcome == "" {
		j.stopping, j.err, j.outcome = true, why, state
		w.makeReady(j)
	} else if j.outcome == "completed" && !broken {
		j.err = why
	}
	w.settle(j)
	return "accepted"
}

func (w *model) cancelTask(op *CancelTask) string {
	j, _, r := w.task(op.Task)
	if r != "" {
		return r
	}
	list, open := []uint32{op.Task.Index}, false
	if op.WholeArray {
		at := slices.IndexFunc(j.arrays, func(a []uint32) bool { return slices.Contains(a, op.Task.Index) })
		if at < 0 {
			return "task not found"
		}
		list = j.arrays[at]
	}
	for _, i := range list {
		open = open || !j.tasks[i].hasEnded()
	}
	switch {
	case !open:
		return "already ended"
	case len(op.Reason) > maxText:
		return "malformed"
	}
	for _, i := range list {
		t := j.tasks[i]
		if t.hasEnded() {
			continue
		}
		if t.state == "assigned" {
			w.ends = append(w.ends, fmt.Sprintf("%d/%d@%d by %d", op.Task.Job, i, t.attempt, t.worker))
		}
		w.end(t, "cancelled", op.Reason)
		t.byUser = true
	}
	w.follow(j)
	w.settle(j)
	return "accepted"
}

func (w *model) failTask(op *FailTask) string {
	j, t, r := w.task(op.Task)
	switch {
	case r != "":
		return r
	case t.hasEnded():
		return "already ended"
	case t.state == "assigned":
		return "wrong state"
	case len(op.Error) > maxText:
		return "malformed"
	}
	w.failed(j, t, "failed", op.Error)
	return "accepted"
}
