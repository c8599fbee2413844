package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
)

// queueTimeouts are the queue timeouts of ready tasks. Like the order of ready
// tasks, they are the leader's alone: a new one starts all of them again.
type queueTimeouts struct {
	// until has when the queue timeout of a task ends that was started last. A
	// task that was cancelled and retried while it waited has older timers, too.
	// The last one removes the entry.
	until   map[fsm.TaskRef]time.Time
	expired []fsm.TaskRef // tasks to requeue, in order
}

// startQueueTimeout starts the queue timeout of a task that was queued, if it
// has one.
func (d *dispatcher) startQueueTimeout(b *batch, ref fsm.TaskRef, p *policy) {
	if p.queueTimeout > 0 {
		at := b.now.Add(p.queueTimeout)
		d.queued.until[ref] = at
		d.timers.add(timer{at: at, kind: timerQueue, task: ref})
	}
}

// endQueueTimeout fails a task that still waits, or marks it for requeue.
func (d *dispatcher) endQueueTimeout(b *batch, t timer) {
	if !d.queued.until[t.task].Equal(t.at) {
		return // it was queued again since
	}
	delete(d.queued.until, t.task)
	v, _ := b.view.Task(t.task)
	switch {
	case v.State != fsm.Pending || d.cleanups.holds(t.task): // it doesn't wait in the queue
	case d.policies.numbered(b.view, t.task.Job, v.Policy).requeues:
		d.queued.expired = append(d.queued.expired, t.task)
	default:
		b.entry.Do(&fsm.FailTask{Task: t.task, Error: "queue timeout: not assigned in time"})
		d.stale++
	}
}

// requeue puts the tasks whose queue timeout has expired behind all that are
// ready, and starts the queue timeout again. Nothing of it is proposed. How long
// they have been ready is not reset.
func (d *dispatcher) requeue(b *batch) {
	for _, ref := range d.queued.expired {
		t, ok := b.view.Task(ref)
		if !ok || t.State != fsm.Pending {
			continue // its job ended within the same batch
		}
		p := d.policies.numbered(b.view, ref.Job, t.Policy)
		d.unschedule(ref)
		d.schedule(b, ref, &t, p)
		d.startQueueTimeout(b, ref, p)
	}
	d.queued.expired = d.queued.expired[:0]
}
