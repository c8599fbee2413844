package sequencer

import (
	"container/heap"
	"time"

	"github.com/dtask/dtask/fsm"
)

// queueTimeouts are the queue timeouts of ready tasks. Like the order of ready
// tasks, they are not replicated: a new leader restarts all of them.
type queueTimeouts struct {
	// until is when the latest queue timeout of a task expires. A task that was
	// cancelled and retried while it waited has older timers, too, which are
	// ignored. The timer of the latest removes the entry.
	until   map[fsm.TaskRef]time.Time
	expired []fsm.TaskRef // tasks to requeue, in order
	checked int           // dropTimers has checked the timers before this one
}

// maxTimersChecked is how many timers a sweep checks, which takes some milliseconds.
const maxTimersChecked = 10_000

// startQueueTimeout starts the queue timeout of a task that was queued, if it
// has one.
func (d *dispatcher) startQueueTimeout(b *batch, ref fsm.TaskRef, p *policy) {
	if p.queueTimeout > 0 {
		at := b.now.Add(p.queueTimeout)
		d.queued.until[ref] = at
		d.timers.add(timer{at: at, kind: timerQueue, task: ref})
	}
}

// dropTimers removes timers of tasks that do not wait any more, or until another time, some with
// each sweep. Mostly, tasks wait in a queue far shorter than they may: the timers of all that have
// started since would be many more than those of the tasks that wait. A start time or a retry may
// be days ahead, and tasks may be cancelled or updated again and again.
func (d *dispatcher) dropTimers(b *batch) {
	q, h := &d.queued, &d.timers.h
	for range min(len(*h), maxTimersChecked) {
		if q.checked >= len(*h) {
			q.checked = 0
			return
		}
		t := (*h)[q.checked]
		if t.kind == timerDue && !isDueThen(b, t) {
			heap.Remove(h, q.checked)
			continue
		}
		latest := t.kind == timerQueue && q.until[t.task].Equal(t.at)
		if t.kind != timerQueue || latest && d.isQueued(b, t.task) {
			q.checked++
			continue
		}
		if latest {
			delete(q.until, t.task)
		}
		heap.Remove(h, q.checked)
	}
}

// isDueThen reports whether the task of a timer for a due time still waits for it.
func isDueThen(b *batch, t timer) bool {
	v, _ := b.view.Task(t.task) // without a due time if it does not wait
	return v.DueMS == t.due && v.Attempt == t.attempt
}

// isQueued reports whether a task waits in a queue. If it does later, its queue timeout begins then.
func (d *dispatcher) isQueued(b *batch, ref fsm.TaskRef) bool {
	t, _ := b.view.Task(ref)
	return t.State == fsm.Pending && !d.cleanups.holds(ref)
}

// endQueueTimeout fails a task that still waits, or marks it for requeue.
func (d *dispatcher) endQueueTimeout(b *batch, t timer) {
	if !d.queued.until[t.task].Equal(t.at) {
		return // an older timer
	}
	delete(d.queued.until, t.task)
	v, _ := b.view.Task(t.task)
	switch {
	case !d.isQueued(b, t.task):
	case d.policies.numbered(b.view, t.task.Job, v.Policy).requeues:
		d.queued.expired = append(d.queued.expired, t.task)
	default:
		b.entry.Do(&fsm.FailTask{Task: t.task, Error: "queue timeout: not assigned in time"})
		d.stale++
	}
}

// requeue puts the tasks whose queue timeout has expired behind all that are
// ready, and restarts their queue timeouts. It proposes nothing, and does not
// reset how long they have been ready.
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
