package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// leases are the at-most-once attempts that have started on a worker that is
// down or has another process now. They may still run: they count towards
// max_parallel, and end as lost when their lease ends.
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
	until  time.Time // a timer of an earlier lease of the attempt may fire before
}

// start starts the lease of an attempt.
func (l *leases) start(b *batch, h fsm.HeldAttempt) {
	until := b.now.Add(l.duration)
	class := l.policies.classOfTask(b.view, h.TaskRef)
	l.sched.Reserve(class)
	l.byRef[h.AttemptRef] = lease{worker: h.Worker, until: until, class: class}
	l.timers.add(timer{at: until, kind: timerLease, task: h.TaskRef, attempt: h.Attempt})
}

// end ends the lease of an attempt, if it has one.
func (l *leases) end(a fsm.AttemptRef) {
	if x, ok := l.byRef[a]; ok {
		delete(l.byRef, a)
		l.sched.Unreserve(x.class)
	}
}

// expire ends an attempt as lost if its lease is over.
func (l *leases) expire(b *batch, a fsm.AttemptRef, running *observations) {
	x, ok := l.byRef[a]
	if !ok || b.now.Before(x.until) {
		return
	}
	l.end(a)
	running.forget(a)
	b.entry.Lose(fsm.HeldAttempt{AttemptRef: a, Worker: x.worker})
}
