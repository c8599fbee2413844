package api

import (
	"context"
	"strings"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxJobTasks is how many unfinished tasks of a job are explained.
	maxJobTasks = 100
	// maxJobAsked is how many pending tasks of a job the leader is asked about.
	maxJobAsked = 4
)

// explainJob explains the first unfinished tasks of a job, grouped by reason.
func (j *jobs) explainJob(ctx context.Context, leader Leader, id fsm.JobID) (*dtaskv1.ExplainResponse, error) {
	if j.explains.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer j.explains.Release(1)
	tasks, index, err := j.openTasks(formatJobID(id))
	if err != nil {
		return nil, err
	}
	x := &jobExplainer{taskReader: tasks, ctx: ctx, server: j.Server, leader: leader, groups: make(map[string]*dtaskv1.TaskGroup)}
	x.resp = &dtaskv1.ExplainResponse{
		Job: formatJobID(id), JobState: fsm.ProtoJobState(tasks.job.State), Complete: true, Index: index,
	}
	return x.resp, x.explain()
}

// A jobExplainer makes one answer about a job.
type jobExplainer struct {
	*taskReader

	ctx    context.Context //nolint:containedctx // it lives as long as one call
	server *Server
	leader Leader
	resp   *dtaskv1.ExplainResponse
	groups map[string]*dtaskv1.TaskGroup // by state and text
	asked  map[fsm.TaskRef]*dtaskv1.Reason
}

func (x *jobExplainer) explain() error {
	switch {
	case x.job.State.Terminal():
		r := &dtaskv1.Reason{Code: "job_ended", Detail: strings.TrimSuffix(x.job.State.String()+": "+x.job.Error, ": ")}
		r.Text = sentence(r)
		x.resp.Reasons = append(x.resp.Reasons, r)
		return nil
	case x.job.Waiting:
		y := newExplainer(x.taskReader, x.ref(0), &sequencer.Explanation{}, caller(x.ctx))
		y.waitsForJobs()
		x.resp.Reasons = y.resp.GetReasons()
	}
	left := maxJobTasks
	for i, t := range x.st.AttemptStates(x.job.ID, 0, x.job.Total) {
		if err := ended(x.ctx, i); err != nil {
			return err
		}
		if t.State.Terminal() {
			continue
		}
		if left--; left < 0 {
			x.resp.Complete = false
			break
		}
		r, err := x.reason(x.ref(i), t)
		if err != nil {
			return err
		}
		x.add(i, t, r)
	}
	return nil
}

// add adds a task to the group of its reason.
func (x *jobExplainer) add(i uint32, t fsm.AttemptState, r *dtaskv1.Reason) {
	r.Text = sentence(r)
	state := x.state(i, t)
	key := state.String() + r.GetText()
	g := x.groups[key]
	if g == nil {
		g = &dtaskv1.TaskGroup{Reason: r, State: state}
		x.groups[key] = g
		x.resp.Tasks = append(x.resp.Tasks, g)
	}
	if g.Tasks++; len(g.GetNames()) < maxExplainedNames {
		g.Names = append(g.Names, x.st.Name(x.ref(i)))
	}
}

// reason returns the most important reason of an unfinished task.
func (x *jobExplainer) reason(ref fsm.TaskRef, t fsm.AttemptState) (*dtaskv1.Reason, error) {
	y := newExplainer(x.taskReader, ref, &sequencer.Explanation{NowMS: x.server.cfg.Wall().UnixMilli()}, caller(x.ctx))
	switch t.State { //nolint:exhaustive // states in which it has not ended
	case fsm.Assigned:
		if isRunning(t, x.observed[ref.Index]) {
			return &dtaskv1.Reason{Code: "tasks_running"}, nil
		}
		return &dtaskv1.Reason{Code: "tasks_starting"}, nil
	case fsm.Pending:
		return x.pending(ref)
	case fsm.Scheduled:
		y.scheduled()
	case fsm.Blocked:
		y.walks = maxWalked / maxJobTasks
		y.blocked()
	}
	return y.resp.GetReasons()[0], nil
}

// pending asks the leader about the first task of each unit, as far as maxJobAsked allows.
func (x *jobExplainer) pending(ref fsm.TaskRef) (*dtaskv1.Reason, error) {
	unit := unitOf(x.st, ref)
	if r := x.asked[unit]; r != nil {
		return r, nil
	}
	r := newExplainer(x.taskReader, ref, &sequencer.Explanation{}, caller(x.ctx)).reasonOf(ref)
	if x.asked == nil {
		x.asked = make(map[fsm.TaskRef]*dtaskv1.Reason)
	}
	if len(x.asked) < maxJobAsked {
		soft, err := x.leader.Explain(x.ctx, ref)
		if err != nil {
			return nil, err
		}
		if soft.State == fsm.Pending && soft.Capacity != nil {
			y := newExplainer(x.taskReader, ref, soft, caller(x.ctx))
			r = y.waits(soft.Capacity(y.sees))[0]
		}
		x.asked[unit] = r
	}
	return r, nil
}
