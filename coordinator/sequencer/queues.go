package sequencer

import (
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// queues mirrors the queues of the state: it sets them in the scheduler, and limits their
// submission rates. Like all soft state it is rebuilt at the start of a term, with full
// buckets.
type queues struct {
	sched    *scheduler.Scheduler
	policies *policyTable
	workers  *workerTable
	dispatch *dispatcher
	buckets  map[string]*bucket // of queues with a submission rate
}

// schedulerQueue returns the name of a queue in the scheduler: the default one has an empty
// name, as in the header of a job.
func schedulerQueue(name string) string {
	if name == fsm.DefaultQueue {
		return ""
	}
	return name
}

// queueSettings returns the settings of a queue in the scheduler.
func queueSettings(x *fsm.Queue) scheduler.Queue {
	to := scheduler.Queue{Weight: x.Weight, MaxRunning: x.MaxRunning, Paused: x.IsPaused()}
	for _, r := range x.Max {
		to.Max = append(to.Max, scheduler.Quantity{Name: r.Name, Amount: r.Amount})
	}
	return to
}

func (q *queues) rebuild(b *batch) {
	for x := range b.view.Queues() {
		q.mirror(b, x)
	}
}

// mirror sets a queue of the state in the scheduler.
func (q *queues) mirror(b *batch, x *fsm.Queue) {
	q.sched.SetQueue(schedulerQueue(x.Name), queueSettings(x))
	q.policies.setRequired(x.Name, x.Require)
	if x.Rate == 0 {
		delete(q.buckets, x.Name)
		return
	}
	to := newBucket(x.Rate, x.PeriodMS, x.Burst, b.now)
	to.units = to.full()
	if k := q.buckets[x.Name]; k == nil || k.perMicro != to.perMicro || k.token != to.token || k.burst != to.burst {
		q.buckets[x.Name] = &to
	}
}

// changed updates the mirror after a queue was set or deleted.
func (q *queues) changed(b *batch, name string) {
	before := q.policies.required[schedulerQueue(name)]
	if x := b.view.Queue(name); x != nil {
		q.mirror(b, x)
	} else {
		q.sched.RemoveQueue(schedulerQueue(name))
		q.policies.setRequired(name, nil)
		delete(q.buckets, name)
		if name != fsm.DefaultQueue {
			delete(q.dispatch.queueWaits.byQueue, name)
		}
	}
	if !slices.Equal(before, q.policies.required[schedulerQueue(name)]) {
		q.relabel(b, name)
	}
}

// relabel queues the ready tasks of a queue again whose required labels have changed, the
// oldest job first, as a new leader does.
func (q *queues) relabel(b *batch, name string) {
	var open []fsm.Job // newest first
	ids := make(map[fsm.JobID]bool)
	for job := range b.view.Jobs(0) {
		if !job.State.Terminal() && fsm.QueueOf(job.Header) == name {
			open = append(open, job)
			ids[job.ID] = true
		}
	}
	q.moved(b, ids)
	for _, job := range slices.Backward(open) {
		q.dispatch.reorderJob(b, job.ID)
	}
}

// moved reads the policies of jobs again, whose queue or the labels of which have changed:
// their attempts count in the queue where their ready tasks are put next. It reads the
// attempts of all workers once, however many jobs they are.
func (q *queues) moved(b *batch, jobs map[fsm.JobID]bool) {
	var before []*jobPolicies
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		if known := q.policies.jobs[id]; known != nil {
			before = append(before, known)
			delete(q.policies.jobs, id)
		}
	}
	q.workers.moved(b, jobs)
	for _, known := range before {
		q.policies.retire(known) // what is left of its entries is superseded
	}
}

// moved counts the attempts of jobs in their present classes.
func (t *workerTable) moved(b *batch, jobs map[fsm.JobID]bool) {
	for _, number := range slices.Sorted(maps.Keys(t.byID)) {
		w := t.byID[number]
		for i := range w.held.list {
			x := &w.held.list[i]
			if !jobs[x.Job] {
				continue
			}
			class := t.policies.classInstead(b.view, x.TaskRef, x.class)
			t.keepsPlace(w, x)
			t.sched.Occupy(scheduler.WorkerID(w.id), class, x.priority) // first: it does not free the slot
			t.sched.Release(scheduler.WorkerID(w.id), x.class, x.priority)
			x.class = class
			t.mayYield(b.view, w, x)
		}
	}
	t.leases.moved(b, jobs)
}

// moved counts the attempts of jobs in their present classes.
func (l *leases) moved(b *batch, jobs map[fsm.JobID]bool) {
	for a, x := range l.byRef {
		if !jobs[a.Job] {
			continue
		}
		class := l.policies.classInstead(b.view, a.TaskRef, x.class)
		l.sched.Reserve(class)
		l.sched.Unreserve(x.class)
		x.class = class
		l.byRef[a] = x
	}
}

// admit takes a token of a queue for a new job, or returns a *BusyError with the delay until
// the next one.
func (q *queues) admit(b *batch, name string) error {
	if len(q.buckets) == 0 {
		return nil
	}
	if name == "" {
		name = fsm.DefaultQueue
	}
	k := q.buckets[name]
	if k == nil {
		return nil
	}
	wait, ok := k.take(b.now)
	if ok {
		return nil
	}
	wait = max(wait.Round(time.Millisecond), time.Millisecond)
	return &BusyError{What: "queue " + name + " exceeds its submission rate", Limit: LimitQueueRate, RetryAfter: wait}
}
