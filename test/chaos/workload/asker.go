package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster"
)

const (
	// askInterval is about how often a task is explained or a job planned.
	askInterval = 500 * time.Millisecond
	// maxLatest bounds the jobs of which tasks are explained.
	maxLatest = 20
	// explainedEnds is how many ended tasks are explained at the end.
	explainedEnds = 20
)

// submitted is an acknowledged job.
type submitted struct {
	id    string
	tasks []check.PlannedTask
}

// submitted notes a job of which tasks may be explained.
func (w *Workload) submitted(id string, plan check.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest = append(w.latest, submitted{id, plan.Tasks})
	if len(w.latest) > maxLatest {
		w.latest = w.latest[1:]
	}
}

// An asker asks why tasks are in their states, and for the plan of one job that is never
// submitted, so that its plan is the same each time.
type asker struct {
	w       *Workload
	c       *client.Client
	random  *rand.Rand
	job     *dtaskv1.JobSpec
	outline *spec.Outline
}

// fixedPlan is what an asker must read of its plan: number of tasks by level, path, its time.
const fixedPlan = "levels [1 3 1], path [a c e] of 8s, 5 tasks in classes, after 0 runs"

func newAsker(w *Workload) (*asker, error) {
	a := &asker{w: w, c: w.clients[len(w.clients)-1], random: rand.New(rand.NewPCG(w.cfg.Seed, askerNumber))}
	var tasks []cluster.TaskFile
	for _, t := range []struct {
		id, expect string
		after      []string
	}{
		{"a", "1s", nil}, {"b", "2s", []string{"a"}}, {"c", "5s", []string{"a"}}, {"d", "4s", []string{"a"}}, {"e", "2s", []string{"b", "c", "d"}},
	} {
		tasks = append(tasks, cluster.TaskFile{"id": t.id, "type": cluster.MarkType, "payload": "{}", "expect": t.expect}.After(t.after...))
	}
	var err error
	if a.job, err = spec.Parse("workload", []byte(cluster.JobFileWith(map[string]any{"name": "planned"}, tasks...)), spec.Options{}); err != nil {
		return nil, fmt.Errorf("building the planned job: %w", err)
	}
	if a.outline, err = spec.OutlineOf(a.job); err != nil {
		return nil, fmt.Errorf("outlining the planned job: %w", err)
	}
	return a, nil
}

// run asks until ctx is done.
func (a *asker) run(ctx context.Context) {
	for cluster.Pause(ctx, time.Duration(a.random.Int64N(int64(2*askInterval)))) == nil {
		if a.random.IntN(4) == 0 {
			a.plan(ctx)
			continue
		}
		a.w.mu.Lock()
		latest := a.w.latest
		a.w.mu.Unlock()
		if len(latest) > 0 {
			job := latest[a.random.IntN(len(latest))]
			a.explain(ctx, job.id, job.tasks[a.random.IntN(len(job.tasks))].ID, false)
		}
	}
}

// explain explains a task. What fails is recorded.
func (a *asker) explain(ctx context.Context, job, task string, settled bool) {
	a.ask(history.Call{Kind: history.Explain, Job: job, Task: task, Settled: settled}, func(c *history.Call) error {
		got, err := a.c.Explain(ctx, job, task)
		if err != nil {
			return err //nolint:wrapcheck // recorded in any case
		}
		c.Answered, c.State = got.GetJob()+"/"+got.GetTask(), taskStates[got.GetState()]
		for _, r := range got.GetReasons() {
			c.Codes = append(c.Codes, r.GetCode())
		}
		return nil
	})
}

// plan plans the job. What fails is recorded.
func (a *asker) plan(ctx context.Context) {
	a.ask(history.Call{Kind: history.Plan, Key: a.job.GetHeader().GetName(), Want: fixedPlan}, func(c *history.Call) error {
		got, err := a.c.Plan(ctx, a.job.GetHeader(), a.outline.Tasks, client.ReadOptions{})
		if err == nil {
			c.Plan = a.read(got)
		}
		return err //nolint:wrapcheck // recorded in any case
	})
}

// read formats what must be equal in all plans.
func (a *asker) read(got *dtaskv1.PlanResponse) string {
	takes := make([]spec.Span, len(a.outline.Tasks))
	for i := range min(len(takes), len(got.GetLowMs()), len(got.GetHighMs())) {
		takes[i] = spec.Span{Low: got.GetLowMs()[i], High: got.GetHighMs()[i], Bounded: true}
	}
	path := spec.NewGraph(a.job.GetHeader(), a.outline.Tasks).CriticalPath(takes)
	var ids []string
	for _, i := range path.Nodes {
		ids = append(ids, a.outline.Tasks[i].GetId())
	}
	tasks := uint64(0)
	for _, c := range got.GetClasses() {
		tasks += c.GetTasks()
	}
	return fmt.Sprintf("levels %v, path %v of %v, %d tasks in classes, after %d runs",
		spec.Levels(a.job), ids, time.Duration(path.Takes.High)*time.Millisecond, tasks, got.GetRuns())
}

// ask records a call that has no effect. It answers, or the cluster was not available in time.
func (a *asker) ask(c history.Call, do func(*history.Call) error) {
	c.Client = askerNumber
	c = a.w.cfg.Recorder.Begin(c)
	if err := do(&c); err != nil {
		c.Verdict, c.Reason, c.Error = history.Fail, askReason(err), err.Error()
	} else {
		c.Verdict = history.OK
	}
	a.w.cfg.Recorder.End(c)
}

// askReason maps the error of a call that has no effect.
func askReason(err error) string {
	switch {
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrBusy), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return history.Unavailable
	case errors.Is(err, client.ErrNotFound):
		return history.NotFound
	}
	return history.Other
}

// ExplainEnded explains some tasks after everything has ended.
func (w *Workload) ExplainEnded(ctx context.Context, finals []check.Final) {
	if w.cfg.Handovers || len(w.clients) == 0 || len(finals) == 0 {
		return
	}
	a := &asker{w: w, c: w.clients[0], random: rand.New(rand.NewPCG(w.cfg.Seed, askerNumber+1))}
	for range explainedEnds {
		if f := &finals[a.random.IntN(len(finals))]; len(f.Tasks) > 0 {
			a.explain(ctx, f.ID, f.Tasks[a.random.IntN(len(f.Tasks))].ID, true)
		}
	}
}
