package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// maxPlans is how many calls are answered at a time; others wait. One takes up to a second
	// of a processor for 100,000 tasks.
	maxPlans = 1
	// maxPlanCalls is how many calls there are at a time, with those that wait: the request of
	// one takes up to 100 MB in memory.
	maxPlanCalls = 8
	// maxPlanLists bounds the workers in the lists that the scheduler of a plan makes, one for
	// each demand and each max_parallel, to 256 MB.
	maxPlanLists = 32 << 20
	// maxPlanTime bounds one call.
	maxPlanTime = 10 * time.Second
	// maxPlanClasses and maxPlanChanges bound what an answer lists.
	maxPlanClasses = 1000
	maxPlanChanges = 100
	// maxFitTasks is how many tasks a request has that only asks for classes.
	maxFitTasks = 100
)

// errPlanTooLong is returned for a plan that takes longer than maxPlanTime.
var errPlanTooLong = refused("the plan takes longer than %s: plan a part of the job", maxPlanTime)

// errPlanTooLarge is returned for a plan whose lists of workers are above maxPlanLists.
var errPlanTooLarge = refused("the job has too many different demands and arrays with max_parallel to be planned for all workers: plan a part of it")

// errPlansWait is returned for a plan that is not begun, because of others.
var errPlansWait = &Error{Kind: KindBusy, RetryAfter: time.Second, Message: "this coordinator makes plans for other callers"}

// Plan implements JobService. It works on a fork of the state: any replica answers, and clients
// ask one that does not lead, so that the leader only gives it an index.
func (j *jobs) Plan(ctx context.Context, r *dtaskv1.PlanRequest) (*dtaskv1.PlanResponse, error) {
	h := r.GetHeader()
	if h == nil {
		return nil, invalid("header: missing")
	}
	if err := (&upload{Server: j.Server, caller: caller(ctx)}).claim(h); err != nil {
		return nil, err
	}
	spec.Fill(h, j.cfg.TaskDefaults)
	if faults := spec.CheckOutline(h, r.GetTasks()); faults != nil {
		return nil, faults
	}
	if err := j.checkNames(h); err != nil {
		return nil, err
	}
	if err := j.checkStart(h); err != nil {
		return nil, err
	}
	if r.GetFitOnly() {
		if n := len(r.GetTasks()); n > maxFitTasks {
			return nil, invalid("tasks: has %d; must have at most %d with fit_only", n, maxFitTasks)
		}
		st, index := j.cfg.Machine.Fork()
		p := newPlan(ctx, h, r.GetTasks(), st)
		p.resp.Freshness = j.freshness(index)
		p.classes()
		return p.resp, nil
	}
	if !j.planQueue.TryAcquire(1) {
		return nil, errPlansWait
	}
	defer j.planQueue.Release(1)
	ctx, cancel := context.WithTimeoutCause(ctx, maxPlanTime, errPlanTooLong)
	defer cancel()
	if j.plans.Acquire(ctx, 1) != nil {
		if context.Cause(ctx) == errPlanTooLong { //nolint:errorlint // it is not wrapped: others take as long
			return nil, errPlansWait
		}
		return nil, context.Cause(ctx)
	}
	defer j.plans.Release(1)
	names := make(map[string]bool, len(r.GetTasks()))
	for _, t := range r.GetTasks() {
		names[t.GetId()] = true
	}
	times, err := j.readPastRuns(ctx, h, names)
	if err != nil {
		return nil, err
	}
	st, index := j.cfg.Machine.Fork()
	p := newPlan(ctx, h, r.GetTasks(), st)
	p.resp.Freshness = j.freshness(index)
	p.estimate(times)
	p.classes()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.resp.GetClasses()[0].GetAtOnce() > 0 {
		if p.lists() > maxPlanLists {
			return nil, errPlanTooLarge
		}
		p.makespan()
		p.bounds()
	}
	if times.last != 0 {
		if err := j.changes(ctx, p, times.last); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return p.resp, nil
}

// A plan is one answer while it is made.
type plan struct {
	ctx     context.Context //nolint:containedctx // it lives within one call
	header  *dtaskv1.JobHeader
	tasks   []*dtaskv1.PlanTask
	st      *fsm.State
	graph   *spec.Graph
	planner *sequencer.Planner
	takes   []spec.Span // of one task of each entry
	known   bool        // all run times are
	byClass map[uint32]*dtaskv1.PlanClass
	fitting map[uint32]uint64 // tasks of each class that the workers could run at once
	resp    *dtaskv1.PlanResponse
}

func newPlan(ctx context.Context, h *dtaskv1.JobHeader, tasks []*dtaskv1.PlanTask, st *fsm.State) *plan {
	p := &plan{ctx: ctx, header: h, tasks: tasks, st: st, graph: spec.NewGraph(h, tasks), resp: new(dtaskv1.PlanResponse)}
	var fleet []*fsm.Worker
	for w := range st.Workers() {
		served := w.Namespaces()
		if w.State == fsm.WorkerUp && !w.Drains() && w.Slots > 0 && (served == nil || slices.Contains(served, namespaceOf(h))) {
			fleet = append(fleet, w)
			p.resp.SlotsInUse += min(uint64(st.LiveAttempts(w.ID)), uint64(w.Slots)) //nolint:gosec // not negative
		}
	}
	p.planner = sequencer.NewPlanner(h, fleet, st.Queue(fsm.QueueOf(h)), func(use string) fsm.LimitSettings { return st.NamedLimit(fsm.LimitOf(use)).GetSettings() })
	p.resp.Workers, p.resp.Slots = uint32(len(fleet)), p.planner.Slots() //nolint:gosec // workers are few
	return p
}

func (p *plan) policy(i int) *dtaskv1.TaskPolicy {
	return p.header.GetPolicies()[p.tasks[i].GetPolicy()]
}

// estimate sets the run times: those of earlier runs, else what the job file expects.
func (p *plan) estimate(times *pastRuns) {
	n := len(p.tasks)
	p.takes, p.known = make([]spec.Span, n), true
	p.resp.LowMs, p.resp.HighMs, p.resp.Samples = make([]int64, n), make([]int64, n), make([]uint32, n)
	p.resp.Runs = uint32(times.runs) //nolint:gosec // at most maxPastRuns
	for i, t := range p.tasks {
		low, high, samples := times.of(t.GetId())
		if samples == 0 {
			low, high = p.policy(i).GetExpectMs(), p.policy(i).GetExpectMs()
		}
		limit := spec.MaxDuration.Milliseconds()
		low, high = min(low, limit), min(high, limit)
		p.resp.LowMs[i], p.resp.HighMs[i], p.resp.Samples[i] = low, high, uint32(samples) //nolint:gosec // bounded
		p.takes[i] = spec.Span{Low: low, High: high, Bounded: high > 0}
		p.known = p.known && (high > 0 || p.graph.Skipped(i))
	}
}

// classes groups the tasks by what they demand of a worker.
func (p *plan) classes() {
	p.byClass, p.fitting = make(map[uint32]*dtaskv1.PlanClass), make(map[uint32]uint64)
	for i, t := range p.tasks {
		id := p.planner.Class(t.GetPolicy())
		c := p.byClass[id]
		if c == nil {
			if p.ctx.Err() != nil {
				return
			}
			x := p.policy(i)
			c = &dtaskv1.PlanClass{Task: t.GetId(), Type: fsm.RequiredType(x), Require: spec.Required(x), Resources: x.GetResources(), Alternatives: x.GetAlternatives(), Secrets: x.GetSecrets(), Uses: x.GetUses()}
			workers, fitting := p.planner.Fitting(t.GetPolicy())
			p.fitting[id] = fitting
			c.Workers, c.AtOnce = uint32(workers), p.planner.AtOnce(t.GetPolicy(), fitting) //nolint:gosec // workers are few
			if unmet := unmetDemand(p.st, p.header, x, anyWorker); workers == 0 {
				c.Reason = cmp.Or(unmet.GetDetail(), "no worker has all that it needs")
			} else if unmet.GetCauseCode() == "queue_short" {
				c.AtOnce, c.Reason = 0, unmet.GetDetail()
			}
			p.byClass[id] = c
			p.resp.Classes = append(p.resp.Classes, c)
		}
		c.Tasks += spec.TasksOf(t)
	}
	slices.SortStableFunc(p.resp.GetClasses(), func(a, b *dtaskv1.PlanClass) int {
		return cmp.Or(cmp.Compare(min(a.GetAtOnce(), 1), min(b.GetAtOnce(), 1)), cmp.Compare(b.GetTasks(), a.GetTasks()))
	})
	p.resp.Classes = p.resp.GetClasses()[:min(len(p.resp.GetClasses()), maxPlanClasses)]
}

// lists is how many workers the lists of a scheduler for the job can have.
func (p *plan) lists() int {
	n := len(p.byClass)
	for _, t := range p.tasks {
		if limit := t.GetMaxParallel(); limit > 0 && limit < t.GetTasks() {
			n++
		}
	}
	return n * int(p.resp.GetWorkers())
}

// makespan runs the job in virtual time: with the lower run times, and with the higher ones. A
// shorter task can delay others by taking another slot, so the second is not
// always longer.
func (p *plan) makespan() {
	tasks := make([]sequencer.PlannedTasks, len(p.tasks))
	for i, t := range p.tasks {
		tasks[i] = sequencer.PlannedTasks{
			Policy: t.GetPolicy(), Tasks: uint32(spec.TasksOf(t)), MaxParallel: t.GetMaxParallel(), Needs: t.GetDependencies(), //nolint:gosec // at most MaxTasks
			Skipped: p.graph.Skipped(i),
		}
	}
	pace := pacer{began: time.Now()}
	stop := func() bool {
		pace.rest()
		return p.ctx.Err() != nil
	}
	low, high, ok := p.planner.Makespan(tasks, func(i int) int64 { return p.takes[i].Low }, stop)
	if !ok {
		return
	}
	p.resp.Makespan = &dtaskv1.PlanTime{LowMs: low}
	if !p.known {
		return
	}
	if !slices.ContainsFunc(p.takes, func(s spec.Span) bool { return s.Low != s.High }) {
		p.resp.Makespan = planTime(spec.Span{Low: low, High: high, Bounded: true})
		return
	}
	if l, h, ok := p.planner.Makespan(tasks, func(i int) int64 { return p.takes[i].High }, stop); ok {
		p.resp.Makespan = planTime(spec.Span{Low: min(low, l), High: max(high, h), Bounded: true})
	}
}

func planTime(s spec.Span) *dtaskv1.PlanTime {
	return &dtaskv1.PlanTime{LowMs: s.Low, HighMs: s.High, Bounded: s.Bounded}
}

// changes compares the job with an earlier one of its name.
func (j *jobs) changes(ctx context.Context, p *plan, id fsm.JobID) error {
	st, job, _, err := j.forkJob(id)
	if isMissing(err) {
		return nil
	} else if err != nil {
		return err
	}
	before := new(spec.Outline)
	err = st.EachSubmitted(id, func(t *fsm.SubmittedTask) error {
		before.AddTask(string(t.Name), t.Policy, t.Dependencies, fsm.ProtoConditions(t.Conditions), t.Body)
		return ended(ctx, t.Index)
	}, before.Add)
	if err != nil {
		return err
	}
	list := spec.Changes(job.Header, p.header, before.Tasks, p.tasks)
	p.resp.LastJob, p.resp.ChangesTotal = formatJobID(id), uint32(len(list)) //nolint:gosec // bounded by the jobs
	p.resp.Changes = list[:min(len(list), maxPlanChanges)]
	return nil
}
