package sequencer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	jobspec "github.com/dtask/dtask/spec"
)

// hasPlans reports whether jobs are planned in the run of a seed.
func hasPlans(seed uint64) bool { return seed >= firstOriginSeed && seed%2 == 0 }

// simPlanner is a user who plans jobs like those that were submitted. It draws from a generator of
// its own.
type simPlanner struct {
	c   *sim
	rng *rand.Rand
}

func newSimPlanner(c *sim) {
	x := &simPlanner{c: c, rng: rand.New(rand.NewPCG(c.seed, 6))}
	c.after(x.pause(), x.turn)
}

func (x *simPlanner) pause() time.Duration {
	return time.Duration(x.rng.Int64N(int64(2 * time.Second)))
}

func (x *simPlanner) turn() {
	c := x.c
	if c.calm {
		return
	}
	if j := c.jobs[x.rng.IntN(len(c.jobs))]; j.id != 0 && len(c.terms) > 0 {
		id, t := j.id, c.terms[x.rng.IntN(len(c.terms))] // also one that is deposed
		c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
			return s.PlanChangesNothing(ctx, func(st *fsm.State) error { return planAgain(st, id) })
		}, func(err error) {
			c.note("planned", uint64(id), 0)
			if err != nil {
				c.fail("a plan of job %d: %v", id, err)
			}
		})
	}
	c.after(x.pause(), x.turn)
}

// simPlan is a plan of a job that is in the state.
type simPlan struct {
	st     *fsm.State
	job    fsm.Job
	fleet  []*fsm.Worker // those that are up and do not drain
	tasks  []sequencer.PlannedTasks
	units  []simUnit
	queue  *fsm.Queue
	limits func(use string) fsm.LimitSettings
}

// simUnit is what the state has of a task or of an array.
type simUnit struct {
	policy  *dtaskv1.TaskPolicy
	tasks   int64
	skipped bool  // it only runs after a failure
	ends    int64 // s after the start, if each task takes one and all that are ready run
}

// planAgain plans a job of the state as if it were submitted again, and compares the plan with what
// follows from the state.
func planAgain(st *fsm.State, id fsm.JobID) error {
	job, ok := st.Job(id)
	if !ok {
		return nil // it was archived
	}
	p := &simPlan{st: st, job: job, queue: st.Queue(fsm.QueueOf(job.Header))}
	p.limits = func(use string) fsm.LimitSettings { return st.NamedLimit(fsm.LimitOf(use)).GetSettings() }
	for w := range st.Workers() {
		if w.State == fsm.WorkerUp && !w.Drains() && w.Slots > 0 {
			p.fleet = append(p.fleet, w)
		}
	}
	if err := p.outline(); err != nil {
		return err
	}
	p.graph()
	if len(p.units) != len(p.tasks) {
		return fmt.Errorf("it has %d entries, and the state %d", len(p.tasks), len(p.units))
	}
	if err := p.levels(); err != nil {
		return err
	}
	return p.forecast()
}

// outline makes the entries of the plan, as the API does of a job file.
func (p *simPlan) outline() error {
	o := new(jobspec.Outline)
	err := p.st.EachSubmitted(p.job.ID, func(t *fsm.SubmittedTask) error {
		o.AddTask(string(t.Name), t.Policy, t.Dependencies, fsm.ProtoConditions(t.Conditions), t.Body)
		return nil
	}, o.Add)
	if err != nil {
		return fmt.Errorf("its outline: %w", err)
	}
	graph := jobspec.NewGraph(p.job.Header, o.Tasks)
	for i, t := range o.Tasks {
		p.tasks = append(p.tasks, sequencer.PlannedTasks{
			Policy: t.GetPolicy(), Tasks: uint32(jobspec.TasksOf(t)), MaxParallel: t.GetMaxParallel(), Needs: t.GetDependencies(), Skipped: graph.Skipped(i),
		})
	}
	return nil
}

// graph reads from the state what depends on what, by the numbers of tasks.
func (p *simPlan) graph() {
	at := map[uint32]int{} // units, by their first tasks
	last := int64(0)       // the end of the ordinary tasks
	for i := uint32(0); i < p.job.Total; {
		ref := fsm.TaskRef{Job: p.job.ID, Index: i}
		t, _ := p.st.Task(ref)
		u := simUnit{policy: p.job.Policy(t.Policy), tasks: int64(p.st.Span(ref))}
		conditions := p.st.Conditions(ref)
		for k, d := range p.st.Dependencies(ref) {
			of, when := p.units[at[d]], fsm.WhenCompleted
			if len(conditions) > 0 {
				when = conditions[k]
			}
			u.skipped = u.skipped || when == fsm.WhenFailed || of.skipped && when != fsm.WhenEnded
			u.ends = max(u.ends, of.ends)
		}
		if t.Cleanup {
			u.ends = max(u.ends, last)
		}
		if a, ok := p.st.ArrayTask(ref); ok && a.MaxParallel > 0 && !u.skipped {
			u.ends += (u.tasks + int64(a.MaxParallel) - 1) / int64(a.MaxParallel)
		} else if !u.skipped {
			u.ends++
		}
		if !t.Cleanup {
			last = max(last, u.ends)
		}
		at[i] = len(p.units)
		p.units = append(p.units, u)
		i += uint32(u.tasks)
	}
}

// depth returns when all tasks have ended, if each takes a second and all that are ready run.
func (p *simPlan) depth() (d int64) {
	for _, u := range p.units {
		if !u.skipped {
			d = max(d, u.ends)
		}
	}
	return d
}

const simPlanMS = 1000 // run time of each planned task

func (p *simPlan) makespan(planner *sequencer.Planner) (low, high int64, ok bool) {
	return planner.Makespan(p.tasks, func(int) int64 { return simPlanMS }, func() bool { return false })
}

// levels checks that the job takes as many seconds as it has levels, on a worker that has enough of
// everything.
func (p *simPlan) levels() error {
	whale := &fsm.Worker{
		ID: 1, Slots: 10_000, Labels: []fsm.Label{{Key: fsm.WorkerLabel, Value: "w0"}, {Key: "zone", Value: "a"}},
		Resources: []fsm.Resource{{Name: "cpu", Amount: 1 << 40}, {Name: "gpu", Amount: 1 << 40}},
	}
	planner := sequencer.NewPlanner(p.job.Header, []*fsm.Worker{whale}, nil, func(string) fsm.LimitSettings { return fsm.LimitSettings{} })
	low, high, ok := p.makespan(planner)
	if want := p.depth() * simPlanMS; !ok || low != want || high != want {
		return fmt.Errorf("on a large worker it takes %d to %d ms (%v), want %d", low, high, ok, want)
	}
	return nil
}

// forecast checks a plan on the workers that are there: which of them fit, that it is known how long
// the job takes if some worker fits each task, and that this is possible.
func (p *simPlan) forecast() error {
	planner := sequencer.NewPlanner(p.job.Header, p.fleet, p.queue, p.limits)
	all, rated, work := true, false, int64(0)
	for i, u := range p.units {
		fit := p.fitting(u.policy)
		if got, _ := planner.Fitting(p.tasks[i].Policy); got != fit {
			return fmt.Errorf("tasks of policy %v fit %d workers, want %d", u.policy, got, fit)
		}
		if !u.skipped {
			all = all && p.allowed(u.policy)
			rated = rated || len(u.policy.GetUses()) > 0
			work += u.tasks * simPlanMS
		}
	}
	switch low, high, ok := p.makespan(planner); {
	case ok != all:
		return fmt.Errorf("it is known how long it takes: %v, want %v", ok, all)
	case ok && (low < p.depth()*simPlanMS || high < low || high > work && !rated):
		return fmt.Errorf("it takes %d to %d ms, with %d levels and %d ms of work", low, high, p.depth(), work)
	}
	return nil
}

// fitting returns how many workers could run a task of a policy if they were idle.
func (p *simPlan) fitting(of *dtaskv1.TaskPolicy) (n int) {
	for _, w := range p.fleet {
		for k := range 1 + len(of.GetAlternatives()) {
			if unfit(w, of, p.queue, uint8(k)) == "" {
				n++
				break
			}
		}
	}
	return n
}

// allowed reports whether a worker could run a task of a policy within the quotas of the queue.
func (p *simPlan) allowed(of *dtaskv1.TaskPolicy) bool {
	for _, w := range p.fleet {
		for k := range 1 + len(of.GetAlternatives()) {
			within := p.queue == nil || len(p.queue.Max) == 0 || cpuOf(of, uint8(k)) <= p.queue.Max[0].Amount
			if within && unfit(w, of, p.queue, uint8(k)) == "" {
				return true
			}
		}
	}
	return false
}
