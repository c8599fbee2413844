package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// dispatcher brings ready tasks to workers: it queues them in the scheduler, or
// holds them back, and assigns what the scheduler chooses.
//
// Invariant: a ready task has at most one entry in the scheduler that is not superseded, that of
// the last time that it was queued. A task that ends while it is ready leaves one, which must not
// start it if it is ready again: see supersedeRevived.
type dispatcher struct {
	sched    *scheduler.Scheduler
	policies *policyTable
	timers   *timers
	workers  *workerTable
	results  *resultCache
	cleanups heldCleanups
	waits    waitSampler
	queued   queueTimeouts

	queueWaits queueWaits
	loadsAt    time.Time // when Totals.Queues was set last
	schedules  *schedules
	gates      *gates
	advanced   time.Time // when the scheduler's time was set last
	stale      uint64    // upper bound of the tasks in the scheduler that are no longer ready
	superseded uint64    // about how many entries were superseded with their job; 0 only if none was
}

// loadsInterval is how often the loads of the queues are counted for metrics: it takes some
// milliseconds with thousands of owners.
const loadsInterval = 5 * time.Second

// advanceInterval is how often the scheduler's time must be set while tasks wait for the
// workers of their keys: see scheduler.Scheduler.Advance.
const advanceInterval = 100 * time.Millisecond

// next returns when tasks may start because time has passed; ok is false if none waits for
// that.
func (d *dispatcher) next() (at time.Time, ok bool) {
	return d.advanced.Add(advanceInterval), d.sched.AwaitsTime()
}

// pushRun takes a run of ready tasks.
func (d *dispatcher) pushRun(b *batch, run fsm.TaskRun) {
	if run.N == 1 {
		d.push(b, run.TaskRef)
		return
	}
	for a := range b.view.UniformRuns(run) {
		if a.State == fsm.Pending { // else the tasks ended within the same batch
			d.pushUniform(b, a)
		}
	}
}

// pushUniform takes pending tasks, all together if none of them needs anything
// of its own.
func (d *dispatcher) pushUniform(b *batch, a fsm.UniformRun) {
	p := d.policies.numbered(b.view, a.Job, a.Policy)
	if a.Cleanup || !a.Fresh || p.reuse > 0 || p.queueTimeout > 0 {
		for i := range a.N {
			d.push(b, fsm.TaskRef{Job: a.Job, Index: a.Index + i})
		}
		return
	}
	d.sched.PushRun(schedulerRef(a.TaskRef), a.N, d.policies.classOf(b.view, a.TaskRef, p), p.priority)
	d.waits.start(a.TaskRun, b.now)
}

func schedulerRef(t fsm.TaskRef) scheduler.TaskRef {
	return scheduler.TaskRef{Job: uint64(t.Job), Index: t.Index}
}

// push takes a ready task.
func (d *dispatcher) push(b *batch, ref fsm.TaskRef) {
	t, ok := b.view.Task(ref)
	if !ok || t.State != fsm.Pending {
		return // it ended within the same batch
	}
	if t.Cleanup && d.cleanups.hold(b, ref, d.workers.isStopping) {
		return
	}
	d.enqueue(b, ref, &t)
}

// enqueue queues a ready task, unless a cached result may end it.
func (d *dispatcher) enqueue(b *batch, ref fsm.TaskRef, t *fsm.Task) {
	p := d.policies.numbered(b.view, ref.Job, t.Policy)
	if p.reuse > 0 && b.view.Reusable(ref, b.entry.NowMS()) {
		d.results.pending = append(d.results.pending, ref)
		return
	}
	d.queue(b, ref, t, p)
}

// queue queues a task in the scheduler.
func (d *dispatcher) queue(b *batch, ref fsm.TaskRef, t *fsm.Task, p *policy) {
	d.schedule(b, ref, t, p)
	d.startQueueTimeout(b, ref, p)
	d.waits.start(fsm.TaskRun{TaskRef: ref, N: 1}, b.now)
}

// schedule puts a task behind all others of its priority.
func (d *dispatcher) schedule(b *batch, ref fsm.TaskRef, t *fsm.Task, p *policy) {
	avoid := scheduler.WorkerID(0)
	if t.Attempt > 0 {
		avoid = scheduler.WorkerID(t.Worker)
	}
	d.sched.Push(schedulerRef(ref), d.policies.classOf(b.view, ref, p), p.priority, avoid)
}

// releaseCleanups queues the cleanup tasks that need not wait any longer.
func (d *dispatcher) releaseCleanups(b *batch) {
	for _, ref := range d.cleanups.due(b.now, d.workers.isStopping) {
		if t, ok := b.view.Task(ref); ok && t.State == fsm.Pending {
			d.enqueue(b, ref, &t)
		}
	}
}

// reuse ends the next pure task whose result is cached, and reports whether
// there was one and the batch had capacity. A task whose result was evicted
// meanwhile is queued.
func (d *dispatcher) reuse(b *batch) bool {
	ref, ok := d.results.next(b)
	if !ok {
		return false
	}
	if b.entry.Do(&fsm.ReuseResults{Items: []fsm.TaskRef{ref}}) == fsm.Accepted {
		b.cfg.Totals.Reuses.Add(1)
	} else if t, ok := b.view.Task(ref); ok && t.State == fsm.Pending {
		d.unschedule(ref) // an update may have queued it meanwhile
		d.queue(b, ref, &t, d.policies.numbered(b.view, ref.Job, t.Policy))
	}
	return true
}

// assign assigns ready tasks to free slots until the batch is full.
func (d *dispatcher) assign(b *batch) {
	n, ready := uint64(0), isReady(b.view)
	d.sched.Advance(b.at.milliseconds())
	d.advanced = b.now
	for !b.full() {
		a, ok := d.sched.Next(ready)
		if !ok && d.policies.rates.settle(b.now) {
			continue
		}
		if !ok {
			break
		}
		ref := fsm.TaskRef{Job: fsm.JobID(a.Task.Job), Index: a.Task.Index}
		last, _ := b.view.Ready(ref)
		it := fsm.AssignItem{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: last + 1}, Worker: fsm.WorkerID(a.Worker)}
		if r := assign(b, it, d.sched.AlternativeOf(a.Class)); r != fsm.Accepted {
			// The task is ready in the view, and the worker is up.
			b.cfg.Logger.Error("assignment rejected",
				"task_id", it.AttemptRef.String(), "worker_id", uint32(it.Worker), "reason", r.String())
			d.sched.Release(a.Worker, a.Class, a.Priority)
			continue
		}
		w := d.workers.byID[it.Worker]
		w.assignments++
		w.assignedAt = b.now
		x := w.held.add(it.AttemptRef)
		x.class, x.priority, x.assigned, x.number = a.Class, a.Priority, b.at, w.assignments
		x.observed = d.noteSpilled(it.AttemptRef, &a)
		if d.sched.IsPreemptible(a.Class) && !d.sched.StartedByAge() {
			d.workers.mayYield(b.view, w, x)
		}
		m := b.to(w)
		m.Assignments = append(m.Assignments, it)
		n++
		if since, ok := d.waits.end(ref, d.sched.Len()); ok {
			b.ready = append(b.ready, since)
			d.queueWaits.observe(d.policies.queueOf(ref.Job), b.now.Sub(since))
		}
	}
	d.policies.rates.settle(b.now)
	b.cfg.Totals.Assignments.Add(n)
}

// assign creates an attempt that takes an alternative of the resources of its task.
func assign(b *batch, it fsm.AssignItem, alternative uint8) fsm.Reason {
	if alternative == 0 {
		return b.entry.Assign(it)
	}
	other := fsm.AlternativeItem{HeldAttempt: fsm.HeldAttempt(it), Alternative: alternative}
	return b.entry.Do(&fsm.AssignAlternative{Items: []fsm.AlternativeItem{other}})
}

// isReady returns a function that reports whether a task in the scheduler still
// waits for its assignment.
func isReady(v *fsm.State) func(scheduler.TaskRef) bool {
	return func(t scheduler.TaskRef) bool {
		_, ready := v.Ready(fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index})
		return ready
	}
}

// dropStale removes tasks that are no longer ready from the scheduler, once they may be half of
// what it holds, and entries that were superseded with their job earlier: it takes less.
func (d *dispatcher) dropStale(b *batch) {
	entries := func() uint64 { return uint64(d.sched.Len()) } //nolint:gosec // not negative
	if d.superseded > 0 && d.superseded >= entries()/8 {
		d.superseded = 0
		d.sched.SweepSuperseded()
	}
	switch n := entries(); {
	case n == 0:
		clear(d.waits.since)
	case d.stale > 0 && d.stale >= n/2:
		d.stale, d.superseded = 0, 0
		d.sched.Sweep(isReady(b.view))
		d.waits.drop(b.view)
	}
}

// sweep removes tasks that are no longer ready from the scheduler, and sets the gauges.
func (d *dispatcher) sweep(b *batch) {
	d.dropStale(b)
	d.dropTimers(b)
	d.gauge(b)
}

// gauge sets the gauges of ready tasks, queues and limits.
func (d *dispatcher) gauge(b *batch) {
	b.cfg.Totals.Unplaceable.Store(int64(d.sched.Unplaceable(isReady(b.view))))
	if age, ok := d.waits.oldest(b.view, b.now); ok {
		b.cfg.Totals.OldestWait.Store(int64(age))
	}
	if b.now.Sub(d.loadsAt) >= loadsInterval {
		d.policies.rates.sweep(b.now)
		d.loadsAt = b.now
		loads := d.loads(b)
		b.cfg.Totals.Queues.Store(&loads)
		limits := d.sched.LimitLoads()
		b.cfg.Totals.Limits.Store(&limits)
	}
	for p := scheduler.Low; p <= scheduler.Urgent; p++ {
		b.cfg.Totals.Depth[p].Store(int64(d.sched.Depth(p)))
	}
}
