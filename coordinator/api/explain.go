package api

import (
	"context"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// explainTries is how often the leader is asked about a task that changes between its
	// answer and the read of the state.
	explainTries = 3
	// maxExplains is how many calls are answered at a time; others wait.
	maxExplains = 4
	// maxScanned is how many dependencies are looked at to find the first cause of a
	// cancellation.
	maxScanned = 2_000_000
	// maxExplained bounds the groups of workers, and the changes, of an answer.
	maxExplained = 100
	// maxExplainedNames is how many workers of a group, or tasks that are waited for, are
	// named.
	maxExplainedNames = 10
)

// Explain implements JobService.
func (j *jobs) Explain(ctx context.Context, r *dtaskv1.ExplainRequest) (*dtaskv1.ExplainResponse, error) {
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	leader, err := j.leader()
	if err != nil {
		return nil, err
	}
	if r.GetTask() == "" {
		return j.explainJob(ctx, leader, id)
	}
	ref, err := j.findTask(id, r.GetTask())
	if err != nil {
		return nil, err
	}
	if j.explains.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer j.explains.Release(1)
	for try := 1; ; try++ {
		soft, err := leader.Explain(ctx, ref)
		if err != nil {
			return nil, err
		}
		tasks, index, err := j.openTasks(r.GetJob())
		if err != nil {
			return nil, err
		}
		x := newExplainer(tasks, ref, soft, caller(ctx))
		if !x.agrees() && try < explainTries {
			continue
		}
		x.archived = !j.inState(id)
		x.resp.Index = index
		x.runs = &runTimeReader{ctx: ctx, server: j.Server, st: tasks.st}
		x.explain()
		return x.resp, nil
	}
}

// inState reports whether a job is in the state: others are in the history.
func (s *Server) inState(id fsm.JobID) (ok bool) {
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { _, _, ok = st.Progress(id) })
	return ok
}

// An explainer makes one answer. Each reason, obstacle and change has a row in
// explain_text.go.
type explainer struct {
	*taskReader

	at       fsm.TaskRef
	task     fsm.Task
	soft     *sequencer.Explanation
	capacity *sequencer.Capacity // may be nil
	caller   *auth.Principal
	archived bool
	walks    int            // dependencies that may be followed: see maxWalked
	scanned  int            // dependencies; see maxScanned
	runs     *runTimeReader // nil: no estimate is made
	resp     *dtaskv1.ExplainResponse
}

func newExplainer(tasks *taskReader, ref fsm.TaskRef, soft *sequencer.Explanation, p *auth.Principal) *explainer {
	x := &explainer{taskReader: tasks, at: ref, soft: soft, caller: p, walks: maxWalked}
	x.task, _ = tasks.st.Task(ref)
	x.resp = &dtaskv1.ExplainResponse{
		Job: formatJobID(ref.Job), Task: tasks.st.Name(ref), State: tasks.state(ref.Index, x.task.AttemptState()), Complete: true,
	}
	return x
}

// agrees reports whether the answer of the leader is about the task as the state has it.
// The leader knows no more than the state about a task that is in its history.
func (x *explainer) agrees() bool {
	return x.soft.State == 0 || x.soft.State == x.task.State && x.soft.Attempt == x.task.Attempt
}

// add adds a reason.
func (x *explainer) add(r *dtaskv1.Reason) {
	r.Text = sentence(r)
	x.resp.Reasons = append(x.resp.Reasons, r)
}

func (x *explainer) explain() {
	if !x.agrees() {
		x.soft, x.resp.Complete = &sequencer.Explanation{NowMS: x.soft.NowMS}, false
	}
	if x.soft.Capacity != nil {
		x.capacity = x.soft.Capacity(x.sees)
	}
	switch x.task.State {
	case fsm.Blocked:
		x.blocked()
	case fsm.Scheduled:
		x.scheduled()
	case fsm.Pending:
		x.pending()
	case fsm.Assigned:
		x.assigned()
	case fsm.Completed, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		x.ended()
	}
}

// scheduled explains a task that waits for a time.
func (x *explainer) scheduled() {
	r := &dtaskv1.Reason{Code: "start_time", Until: x.task.DueMS}
	if x.task.Attempt > 0 {
		r.Code, r.Attempt, r.Detail = "retry_delay", x.task.Attempt+1, x.st.Result(x.at).Error
	}
	x.add(r)
	if x.task.Attempt == 0 && x.startsAfter(&fsm.Update{Job: x.at.Job, Task: x.at.Index, Set: fsm.SetNotBefore}) {
		x.change(&dtaskv1.StartChange{Code: "remove_start_time"})
	}
}

// resourcesTaken returns the resources of an alternative.
func resourcesTaken(p *dtaskv1.TaskPolicy, alternative uint8) map[string]int64 {
	if n := int(alternative); n > 0 && n <= len(p.GetAlternatives()) {
		return p.GetAlternatives()[n-1].GetResources()
	}
	return p.GetResources()
}

// assigned explains a task that a worker has.
func (x *explainer) assigned() {
	r := &dtaskv1.Reason{Code: "starting", Attempt: x.task.Attempt}
	if w := x.st.Worker(x.task.Worker); w != nil {
		r.Worker = w.Name
	}
	if p := x.job.Policy(x.task.Policy); len(p.GetAlternatives()) > 0 {
		r.Alternative, r.Value = uint32(x.task.Alternative)+1, quantities(resourcesTaken(p, x.task.Alternative))
	}
	at := x.task.AttemptState()
	switch {
	case isRunning(at, x.observed[x.at.Index]):
		r.Code = "running"
		if o := observation(at, x.observed[x.at.Index]); o.Permille > 0 || o.Text != "" {
			r.Free, r.Total, r.Unit, r.Detail = int64(o.Permille), 1000, "permille", o.Text
		}
	case x.soft.Before > 0:
		r.Code, r.Want, r.Unit = "waits_at_worker", int64(x.soft.Before), "attempts"
	case x.soft.Unconfirmed:
		r.Code = "not_confirmed"
	}
	x.add(r)
	if x.soft.PreemptedBy != 0 {
		p := &dtaskv1.Reason{Code: "preempted", Worker: r.GetWorker()}
		if job, ok := x.st.Job(x.soft.PreemptedBy); ok && sees(x.caller, job.Header) {
			p.Job = formatJobID(job.ID)
		}
		x.add(p)
	}
	x.spilled()
	gone := &dtaskv1.Reason{Code: "worker_lost", Worker: r.GetWorker(), Attempt: x.task.Attempt}
	switch {
	case x.soft.State == 0 || x.soft.Attached:
		return
	case x.soft.LeaseUntil > 0 && x.task.StartLogged:
		gone.Code, gone.Until = "lease", x.soft.LeaseUntil
	case x.soft.LeaseUntil > 0:
		gone.Code, gone.Until = "limit_lease", x.soft.LeaseUntil
	default:
		gone.Until = x.soft.MarkedDown
	}
	x.add(gone)
}

// ended explains how a task has ended, and whether it can run again.
func (x *explainer) ended() {
	result := x.st.Result(x.at)
	r := &dtaskv1.Reason{Code: "completed", Attempt: x.task.Attempt, Detail: result.Error}
	if w := x.st.Worker(x.task.Worker); w != nil && x.task.Attempt > 0 {
		r.Worker = w.Name
	}
	switch x.task.State { //nolint:exhaustive // states in which it has ended
	case fsm.Completed:
		if r.Detail = ""; result.ReusedJob != 0 {
			r.Code, r.Job, r.Task, r.Worker = "result_reused", formatJobID(result.ReusedJob), result.ReusedTask, ""
		}
	case fsm.Failed:
		r.Code = "failed"
	case fsm.Dead:
		r.Code, r.Want, r.Unit = "retries_exhausted", int64(x.task.Failures)+int64(x.task.Losses)+1, "attempts"
	case fsm.Lost:
		r.Code = "outcome_unknown"
	case fsm.Cancelled:
		r.Code, r.Worker = "cancelled", ""
	}
	x.add(r)
	if x.task.State == fsm.Cancelled {
		x.firstCause()
	}
	if x.task.State != fsm.Completed && x.startsAfter(&fsm.Revive{Job: x.at.Job, Tasks: []uint32{x.at.Index}}) {
		x.change(&dtaskv1.StartChange{Code: "retry_task"})
	}
}

// startsAfter reports whether an operation makes the task ready, and a worker could take
// it now. It is tried on a fork of the state.
func (x *explainer) startsAfter(op fsm.Op) bool {
	if c := x.capacity; x.archived || c == nil || !c.Starts || x.soft.Paused || x.soft.Busy {
		return false
	}
	fork := x.st.Fork()
	if fsm.NewEntryBuilder(fork, x.soft.NowMS, new(fsm.Effects)).Do(op) != fsm.Accepted {
		return false
	}
	_, ready := fork.Ready(x.at)
	return ready
}

// sees reports whether the caller may know of a worker.
func (x *explainer) sees(id fsm.WorkerID) bool {
	w := x.st.Worker(id)
	return w != nil && servesCaller(w, x.caller)
}

// change adds a change.
func (x *explainer) change(c *dtaskv1.StartChange) {
	c.Text = changeText(c, x.resp.GetJob(), x.resp.GetTask())
	x.resp.Changes = append(x.resp.Changes, c)
}
