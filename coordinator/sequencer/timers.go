package sequencer

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/dtask/dtask/fsm"
)

type timerKind uint8

const (
	timerDue      timerKind = iota + 1 // a scheduled task becomes ready
	timerQueue                         // the queue timeout of a ready task
	timerDeadline                      // the deadline of a job
	timerLease                         // the end of an at-most-once attempt's lease
	timerUpload                        // a job that an earlier leader began and no client seals
	timerGate                          // a job may start
	timerExpiry                        // a job that has not started is cancelled
	timerTick                          // a tick of a schedule; task.Job is the number of the schedule, 0 for all that wait for a retry
	timerTokens                        // a limit gets tokens; task.Job is the number of its bucket
	timerSettled                       // the leases that a new leader does not know have ended
)

// maxJobTimer is how far ahead timers of jobs are set. They stay until they fire, and most jobs end
// long before their deadline.
const maxJobTimer = time.Hour

// timer fires at a time. Only those of tasks that wait are removed before (dropTimers), some time
// after they have become useless: what fires checks whether it still applies.
type timer struct {
	at      time.Time
	kind    timerKind
	task    fsm.TaskRef
	attempt uint32
	due     int64 // ms; the task's due time, or the start of the tick, when the timer was added
}

// timers is a heap by time.
type timers struct {
	h      timerHeap
	offset clockOffset // when those of start times were set
	mixed  bool        // some start times were set since, by a clock that had moved
}

func (t *timers) add(x timer) { heap.Push(&t.h, x) }

// addDue adds the timer of a scheduled task, which waits at most for a time.
func (t *timers) addDue(b *batch, a fsm.AttemptRef, dueMS int64, atMost time.Duration) {
	if a.Attempt == 0 && t.offset.isMoved(b) {
		t.mixed = true
	}
	wait := min(b.monotonic(dueMS).Sub(b.now), atMost)
	t.add(timer{at: b.now.Add(wait), kind: timerDue, task: a.TaskRef, attempt: a.Attempt, due: dueMS})
}

// sweep sets the timers for the start times of tasks again if the wall clock was set, and is right
// as far as is known: also if it was set back to what it was, and some were set meanwhile.
func (t *timers) sweep(b *batch) {
	if !t.mixed && !t.offset.isMoved(b) || !b.cfg.ClockAgrees() {
		return
	}
	t.offset, t.mixed = offsetOf(b), false
	for i := range t.h {
		if x := &t.h[i]; x.kind == timerDue && x.attempt == 0 { // else it waits for the delay of a retry
			x.at = b.monotonic(x.due)
		}
	}
	heap.Init(&t.h)
}

// addJob adds a timer of a job. It fires earlier if the time is far ahead, and sets the next one
// then, unless the job has ended.
func (t *timers) addJob(b *batch, kind timerKind, id fsm.JobID, at time.Time) {
	t.add(timer{at: soon(b, at), kind: kind, task: fsm.TaskRef{Job: id}})
}

// soon returns a time, or that in maxJobTimer if it is earlier.
func soon(b *batch, at time.Time) time.Time {
	if limit := b.now.Add(maxJobTimer); at.After(limit) {
		return limit
	}
	return at
}

// addDeadline adds the timer of a job's deadline, which its cleanup tasks don't
// have.
func (t *timers) addDeadline(b *batch, job fsm.Job) {
	if job.Header.GetDeadlineMs() > 0 && !job.CleaningUp() {
		t.addJob(b, timerDeadline, job.ID, deadline(b, job))
	}
}

// deadline returns when a job must have ended.
func deadline(b *batch, job fsm.Job) time.Time {
	return b.monotonic(max(job.SubmittedMS, job.RevivedMS) + job.Header.GetDeadlineMs())
}

// next returns when the first timer fires; ok is false without timers.
func (t *timers) next() (at time.Time, ok bool) {
	if len(t.h) == 0 {
		return time.Time{}, false
	}
	return t.h[0].at, true
}

// due removes and returns the first timer if its time has come.
func (t *timers) due(now time.Time) (timer, bool) {
	if len(t.h) == 0 || t.h[0].at.After(now) {
		return timer{}, false
	}
	return heap.Pop(&t.h).(timer), true //nolint:forcetypeassert,errcheck // the heap holds nothing else
}

// fire executes a timer.
func (d *dispatcher) fire(b *batch, t timer) {
	switch t.kind {
	case timerDue:
		if v, ok := b.view.Task(t.task); ok && v.DueMS == t.due { // else an update has changed it
			b.entry.Due(fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt})
		}
	case timerQueue:
		d.endQueueTimeout(b, t)
	case timerDeadline:
		d.timers.fireDeadline(b, t.task.Job)
	case timerLease:
		d.workers.leases.expire(b, fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt}, d.workers)
	case timerUpload:
		b.entry.Do(&fsm.DropUpload{Job: t.task.Job})
	case timerGate:
		d.gates.fire(b, t)
	case timerExpiry:
		d.gates.expire(b, t.task.Job)
	case timerTick:
		d.schedules.fire(b, t)
	case timerTokens:
		d.policies.rates.fire(b, uint64(t.task.Job))
	case timerSettled:
		d.workers.settling.end(b)
	}
}

// fireDeadline ends a job whose deadline has passed. The timer is too early if the deadline was
// far ahead, the job was retried since, or the wall clock was set back. While the wall clock is in
// doubt, it decides nothing.
func (t *timers) fireDeadline(b *batch, id fsm.JobID) {
	job, ok := b.view.Job(id)
	switch {
	case !ok || job.State.Terminal() || job.CleaningUp():
	case deadline(b, job).After(b.now):
		t.addDeadline(b, job)
	case !b.cfg.ClockAgrees():
		t.add(timer{at: b.now.Add(b.cfg.TimeScale.Scale(gateRetry)), kind: timerDeadline, task: fsm.TaskRef{Job: id}})
	default:
		b.entry.Do(&fsm.FailJob{Job: id, Error: "deadline exceeded"})
	}
}

type timerHeap []timer

func (h *timerHeap) Len() int { return len(*h) }

// Less orders timers of one time by task: tasks that are requeued together keep
// their order.
func (h *timerHeap) Less(i, j int) bool {
	x, y := &(*h)[i], &(*h)[j]
	return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.task.Job, y.task.Job), cmp.Compare(x.task.Index, y.task.Index)) < 0
}

func (h *timerHeap) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *timerHeap) Push(x any)    { *h = append(*h, x.(timer)) } //nolint:forcetypeassert,errcheck // add is the only caller
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
