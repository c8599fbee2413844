package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// shortTask is the average duration up to which a worker's tasks are
// prefetched. Above it, a slot that waits for the log between two tasks loses
// next to nothing, and a task that waits behind a long one while another worker
// is idle loses much.
const shortTask = 100 * time.Millisecond

// prefetchTime is how long the attempts that wait at a worker should keep its
// slots busy: several times what the log takes, so that the worker can report
// several outcomes together, and little enough that a task that has to wait
// behind them hardly notices.
const prefetchTime = 20 * time.Millisecond

// prefetch decides how many attempts a worker gets beyond its slots: one for
// each slot, and more if that is less than prefetchTime. It gets none while all
// of its slots are taken by attempts that turned out to be longer.
type prefetch struct {
	slots   int
	taken   bool          // by attempts that the worker has reported as started, which takes shortTask
	limit   int           // as the worker asked
	average time.Duration // of its completed tasks, exponentially weighted
}

// newPrefetch returns the prefetch of a new worker: some short tasks must
// complete first.
func newPrefetch() prefetch { return prefetch{average: 10 * shortTask} }

// current returns how many attempts the worker may now get beyond its slots. It
// doubles with each halving of the average, so that it seldom changes.
func (p *prefetch) current() int {
	if p.average > shortTask || p.taken {
		return 0
	}
	n := p.slots
	for length := p.average; length <= prefetchTime/2 && n < p.limit; length = max(2*length, 1) {
		n *= 2
	}
	return min(n, p.limit)
}

// completed takes the duration of a completed task into account, and reports
// whether that changes current.
func (p *prefetch) completed(took time.Duration) (changed bool) {
	before := p.current()
	p.average += (took - p.average) / 8
	return p.current() != before
}

// completed records that a worker completed a task.
func (t *workerTable) completed(id fsm.WorkerID, took time.Duration) {
	if w := t.byID[id]; w != nil && w.prefetch.completed(took) {
		t.sched.SetPrefetch(scheduler.WorkerID(id), w.prefetch.current())
	}
}

// prefetchChanged takes into account that an attempt of a worker is known to
// run, or has ended. What waits at a worker for slots that are taken by long
// attempts is revoked: a slot elsewhere may be free sooner, and tasks of a
// higher priority must not wait behind it.
func (t *workerTable) prefetchChanged(w *worker) {
	taken := w.started >= w.prefetch.slots
	if taken == w.prefetch.taken {
		return
	}
	before := w.prefetch.current()
	w.prefetch.taken = taken
	if w.prefetch.current() != before {
		t.sched.SetPrefetch(scheduler.WorkerID(w.id), w.prefetch.current())
	}
	w.revoke = taken && w.held.len() > w.prefetch.slots
	if w.revoke {
		t.revocable = append(t.revocable, w.id)
	}
}
