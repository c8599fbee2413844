package sequencer

import (
	"cmp"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/forecast"
)

// A Planner computes how a job would run on a copy of the workers, if all of them were idle.
// It demands of a worker, and takes of it, what a term does. It belongs to no term and reads
// no state: any replica can plan, without the leader's sequencer.
type Planner struct {
	header   *dtaskv1.JobHeader
	fleet    []scheduler.Capacity
	queue    scheduler.Queue // never paused
	sched    *scheduler.Scheduler
	limit    func(use string) fsm.LimitSettings
	policies []plannedPolicy
	slots    uint64
	totals   map[string]float64 // of the resources of all workers, in thousandths of their units
}

type plannedPolicy struct {
	demand   scheduler.Demand
	class    scheduler.ClassID
	priority scheduler.Priority
}

// NewPlanner returns a planner for a job on workers that are up and do not drain. q is the
// queue of the job, which holds nothing else and is not paused; nil if it is not set. limit returns
// the limit of a use, which nothing else uses; it is not called for a job without uses.
func NewPlanner(h *dtaskv1.JobHeader, workers []*fsm.Worker, q *fsm.Queue, limit func(use string) fsm.LimitSettings) *Planner {
	p := &Planner{header: h, limit: limit, sched: scheduler.New(1), totals: make(map[string]float64)}
	var required []scheduler.Label
	if q != nil {
		p.queue, required = queueSettings(q), requiredLabels(q.Require)
		p.queue.Paused = false
	}
	for _, w := range workers {
		c := capacity(w.Slots, w.Resources, w.Labels)
		p.fleet = append(p.fleet, c)
		p.sched.AddWorker(scheduler.WorkerID(w.ID), c)
		p.slots += uint64(w.Slots)
		for _, r := range w.Resources {
			p.totals[r.Name] += float64(r.Amount)
		}
	}
	for _, t := range h.GetPolicies() {
		x := plannedPolicy{demand: demand(t), priority: priorityOf(h, t)}
		x.demand.Namespace = h.GetNamespace()
		x.demand.Labels = append(x.demand.Labels, required...)
		x.class = p.sched.Class(x.demand)
		p.policies = append(p.policies, x)
	}
	return p
}

// priorityOf returns the priority of the tasks of a policy.
func priorityOf(h *dtaskv1.JobHeader, t *dtaskv1.TaskPolicy) scheduler.Priority {
	return scheduler.Priority(cmp.Or(t.GetPriority(), h.GetPriority(), dtaskv1.Priority_PRIORITY_NORMAL)) //nolint:gosec // the numbers are the same
}

// Slots returns the slots of all workers.
func (p *Planner) Slots() uint64 { return p.slots }

// Total returns how much of a resource all workers have, in thousandths of its unit.
func (p *Planner) Total(resource string) float64 { return p.totals[resource] }

// Class returns a number that policies with equal demands share.
func (p *Planner) Class(policy uint32) uint32 { return uint32(p.policies[policy].class) }

// Fitting returns how many workers could run tasks of a policy, and how many of its tasks
// these could run at the same time, whatever the quotas of the queue and the limits.
func (p *Planner) Fitting(policy uint32) (workers int, tasks uint64) {
	return p.sched.Fitting(p.policies[policy].class)
}

// MaxRunning returns how many tasks of the job's queue may run at once; 0 = unlimited.
func (p *Planner) MaxRunning() uint32 { return p.queue.MaxRunning }

// Max returns how much of a resource the tasks of the queue may hold together, in
// thousandths of its unit; limited is false if that is unlimited.
func (p *Planner) Max(resource string) (amount int64, limited bool) {
	for _, most := range p.queue.Max {
		if most.Name == resource {
			return most.Amount, true
		}
	}
	return 0, false
}

// Limit returns the limit of a use, which nothing else uses.
func (p *Planner) Limit(use string) fsm.LimitSettings { return p.limit(use) }

// AtOnce returns how many of some tasks of a policy may run at once, as if no other task ran: within
// the quotas of the queue and the limits that they use. All of them take the same alternative.
func (p *Planner) AtOnce(policy uint32, tasks uint64) uint64 {
	if most := p.MaxRunning(); most > 0 {
		tasks = min(tasks, uint64(most))
	}
	d := &p.policies[policy].demand
	for _, use := range d.Uses {
		if most := p.limit(use).Running; most > 0 {
			tasks = min(tasks, uint64(most))
		}
	}
	most := p.withinMax(d.Resources, tasks)
	for _, other := range d.Alternatives {
		most = max(most, p.withinMax(other, tasks))
	}
	return most
}

// withinMax returns how many of some tasks that take these resources may run at once.
func (p *Planner) withinMax(resources []scheduler.Quantity, tasks uint64) uint64 {
	for _, need := range resources {
		if most, limited := p.Max(need.Name); limited && need.Amount > 0 {
			tasks = min(tasks, uint64(most/need.Amount)) //nolint:gosec // both are positive
		}
	}
	return tasks
}

// PlannedTasks are a task, or the tasks of an array.
type PlannedTasks struct {
	Policy      uint32
	Tasks       uint32 // at least 1
	MaxParallel uint32 // 0 = unlimited
	Needs       []uint32
	Skipped     bool // they don't run, because no task fails
}

// forecasts is how often a small job is run in virtual time, and forecastTasks how many tasks
// all of these runs have together, at most, so that a large job runs once: there, what one
// choice between equal workers changes is small beside the whole.
const (
	forecasts     = 9
	forecastTasks = 20_000
)

// Makespan returns in how many milliseconds all tasks end if those of entry i run for
// takesMS[i] each, as a range of several runs: which of equally loaded workers gets a task is
// random, and it can be the only one that fits another task. ok is false if stop has returned
// true, or if some tasks never start.
func (p *Planner) Makespan(tasks []PlannedTasks, takesMS func(i int) int64, stop func() bool) (low, high int64, ok bool) {
	units := make([]forecast.Unit, len(tasks))
	total := 0
	for i, t := range tasks {
		total += int(t.Tasks)
		x := &p.policies[t.Policy]
		units[i] = forecast.Unit{
			Demand: x.demand, Priority: x.priority, Tasks: t.Tasks, Limit: t.MaxParallel, TakesMS: takesMS(i),
			Needs: t.Needs, Named: p.named, Cleanup: p.header.GetPolicies()[t.Policy].GetFinally(), Skipped: t.Skipped,
		}
	}
	for seed := range uint64(min(max(1, forecastTasks/max(1, total)), forecasts)) { //nolint:gosec // not negative
		r, ok := forecast.Run(seed+1, p.fleet, p.queue, units, stop)
		if !ok || r.Unplaced > 0 {
			return 0, 0, false
		}
		if seed == 0 {
			low = r.MakespanMS
		}
		low, high = min(low, r.MakespanMS), max(high, r.MakespanMS)
	}
	return low, high, true
}

// named returns the limit of a use.
func (p *Planner) named(use string) forecast.Limit {
	l := p.limit(use)
	return forecast.Limit{Running: l.Running, Rate: l.Rate, PeriodMS: l.PeriodMS, Burst: l.Burst}
}
