package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// leases are the at-most-once attempts that have started, and those with named limits, on a
// worker that is down or has another process now. They may still run: they count towards
// max_parallel and named limits. When their lease ends, the former end as lost, and the
// others are requeued.
type leases struct {
	duration time.Duration
	sched    *scheduler.Scheduler
	policies *policyTable
	timers   *timers
	byRef    map[fsm.AttemptRef]lease
}

type lease struct {
	worker fsm.WorkerID
	class  scheduler.ClassID
	lost   bool      // the attempt may have run when its worker went down
	keeps  bool      // it counts until it is over, even if the attempt has ended in the state
	until  time.Time // a timer of an earlier lease of the attempt may fire before
}

// start starts the lease of an attempt, whose job may not be in the state any more. The class
// is that with which a worker held it, and still does.
func (l *leases) start(b *batch, h fsm.HeldAttempt, class scheduler.ClassID, lost bool) {
	until := b.now.Add(l.duration)
	l.sched.Reserve(class)
	l.byRef[h.AttemptRef] = lease{worker: h.Worker, until: until, class: class, lost: lost, keeps: l.sched.UsesLimits(class)}
	l.timers.add(timer{at: until, kind: timerLease, task: h.TaskRef, attempt: h.Attempt})
}

// ended is called when an attempt has ended in the state, such as by a cancellation.
func (l *leases) ended(a fsm.AttemptRef) {
	if !l.byRef[a].keeps {
		l.end(a)
	}
}

// limitedJobs returns the jobs of which attempts count towards limits until their leases end.
func (l *leases) limitedJobs() map[fsm.JobID]bool {
	jobs := make(map[fsm.JobID]bool)
	for a, x := range l.byRef { // unordered: a set
		if x.keeps {
			jobs[a.Job] = true
		}
	}
	return jobs
}

// end ends the lease of an attempt, if it has one.
func (l *leases) end(a fsm.AttemptRef) {
	if len(l.byRef) == 0 {
		return // usually; a lookup in an empty map still copies a zero lease
	}
	if x, ok := l.byRef[a]; ok {
		delete(l.byRef, a)
		l.sched.Unreserve(x.class)
	}
}

// expire ends an attempt as lost, or requeues it, if its lease is over.
func (l *leases) expire(b *batch, a fsm.AttemptRef, workers *workerTable) {
	x, ok := l.byRef[a]
	if !ok || b.now.Before(x.until) {
		return
	}
	l.end(a)
	workers.running.forget(a)
	workers.requeueLive(b, fsm.HeldAttempt{AttemptRef: a, Worker: x.worker}, x.lost)
}
