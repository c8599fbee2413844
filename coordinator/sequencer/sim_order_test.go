package sequencer_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simTurnByAge is how often a queue starts its oldest task: docs/scheduling.md.
const simTurnByAge = 16

// simOrder checks in which order a term starts tasks, at each entry that it proposes: also those of
// a leader that is deposed and does not know it. It knows nothing of how the scheduler decides. A
// start is compared with the tasks that could have started instead of it, on the same worker: those
// that need nothing but a slot.
type simOrder struct {
	since   map[fsm.TaskRef]simReady
	batch   int
	moved   map[string]bool      // queues of which the batch has changed the settings twice
	passed  map[string]simPassed // by queue
	kept    map[fsm.TaskRef]fsm.WorkerID
	saved   map[string]bool
	failure string

	preempted func(fsm.WorkerID) bool // whether attempts of a worker were to end for urgent tasks in this term
}

// simPassed is how many starts of a queue, one after the other, passed over its oldest task: they
// overtook others, or it could have started instead. None of them was a turn by age.
type simPassed struct {
	oldest simCandidate
	starts int
}

// newSimOrder begins with the tasks that are ready when a term begins.
func newSimOrder(m *fsm.Machine) *simOrder {
	o := &simOrder{since: map[fsm.TaskRef]simReady{}, passed: map[string]simPassed{}}
	m.Read(func(s *fsm.State, _ uint64) {
		var jobs []fsm.Job
		for job := range s.Jobs(0) {
			jobs = append(jobs, job)
		}
		slices.SortFunc(jobs, func(a, b fsm.Job) int { return cmp.Compare(a.ID, b.ID) })
		for i := range jobs {
			o.batch = len(o.since) + 1
			o.look(s, &jobs[i], true)
		}
		o.batch = len(o.since)
	})
	return o
}

// proposed checks the starts of a batch, and returns what is wrong; "" if nothing is.
func (o *simOrder) proposed(data []byte, seq *sequencer.Sequencer) (failure string) {
	o.batch++
	e, err := fsm.Decode(data)
	if err != nil {
		return err.Error()
	}
	soft := seq.Soft()
	o.moved = setTwice(e)
	starts := o.starts(e, soft.View)
	kept, saved := o.kept, o.saved
	o.kept, o.saved = soft.Kept, soft.Saved
	var waiting []simCandidate
	for job := range soft.View.Jobs(0) {
		waiting = append(waiting, o.look(soft.View, &job, false)...)
	}
	if len(starts) == 0 {
		return ""
	}
	f := newSimFleet(&soft)
	f.saved = func(queue string) bool { return saved[queue] || soft.Saved[queue] }
	for i := range starts { // back to the state before the first one
		f.start(&starts[i], -1)
	}
	for i := range starts {
		x := &starts[i]
		o.quotas(x, f)
		if w := soft.View.Worker(x.it.Worker); w != nil && kept[x.it.TaskRef] != w.ID {
			o.start(x, w, f, candidates(waiting, starts[i+1:]), o.preempts(x, &soft))
		}
		f.start(x, 1)
	}
	failure, o.failure = o.failure, ""
	return failure
}

// preempts reports whether a start may be that of a task for which attempts end or have ended on its
// worker. No entry shows when such a worker is kept.
func (o *simOrder) preempts(x *simStart, soft *sequencer.SoftState) bool {
	return x.priority == dtaskv1.Priority_PRIORITY_URGENT && (soft.Ending[x.it.Worker] || o.preempted(x.it.Worker))
}

// A preemptionLog notes the workers where attempts are to end for urgent tasks as soon as the leader has
// decided that: they may end by themselves before it can tell the worker.
type preemptionLog struct {
	slog.Handler
	term *simTerm
}

// Enabled implements slog.Handler.
func (preemptionLog) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelInfo
}

// Handle implements slog.Handler.
func (l preemptionLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "attempt preempted" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "worker_id" {
			l.term.mu.Lock()
			l.term.preempted[fsm.WorkerID(a.Value.Uint64())] = true //nolint:gosec // as it was logged
			l.term.mu.Unlock()
		}
		return true
	})
	return nil
}

func (o *simOrder) fail(format string, args ...any) {
	if o.failure == "" {
		o.failure = fmt.Sprintf(format, args...)
	}
}

// quotas checks that a queue which starts a task is not paused, and holds less than its quota. Attempts of
// workers that are lost count until their leases end.
func (o *simOrder) quotas(x *simStart, f *simFleet) {
	q := f.view.Queue(x.queue)
	switch {
	case q == nil:
	case q.IsPaused():
		o.fail("%v was started in the paused queue %s", x.it.AttemptRef, x.queue)
	case q.MaxRunning > 0 && f.running[x.queue] >= int(q.MaxRunning):
		o.fail("%v was started in queue %s, of which %d tasks run, and its quota is %d", x.it.AttemptRef, x.queue, f.running[x.queue], q.MaxRunning)
	}
}

// start checks that no task should have started before another one, on a worker that was not kept
// free for it. preempts: it may have been, and the start may be one in order, too.
func (o *simOrder) start(x *simStart, w *fsm.Worker, f *simFleet, waiting []simCandidate, preempts bool) {
	var oldest *simCandidate // of the queue
	for i := range waiting {
		if c := &waiting[i]; c.queue == x.queue && (oldest == nil || c.last < oldest.last) {
			oldest = c
		}
	}
	isOlder := oldest != nil && oldest.last < x.first
	if preempts {
		if !isOlder {
			delete(o.passed, x.queue)
		}
		return
	}
	if f.hasFreeSlot(w) && !w.IsReserved() {
		o.inOrder(x, waiting, isOlder, f)
	}
	passes := isOlder && (f.isFull(w) || oldest.couldStart(w, f)) && f.hasCapacity(x.queue)
	o.turnByAge(x, oldest, passes, f.hasFreeSlot(w))
}

// turnByAge checks that after 15 starts in a row that pass over the oldest task of a queue, the next
// one in order does not. Starts that overtake count, and others that may do so, but need not be the
// oldest task. passes: an older task waits, and this is no turn by age.
func (o *simOrder) turnByAge(x *simStart, oldest *simCandidate, passes, ordered bool) {
	p := o.passed[x.queue]
	switch {
	case !passes:
		delete(o.passed, x.queue)
		return
	case p.starts > 0 && p.oldest == *oldest:
		p.starts++
	default:
		p = simPassed{*oldest, 1}
	}
	if o.passed[x.queue] = p; ordered && p.starts >= simTurnByAge {
		o.fail("%d starts in a row of queue %s passed over its oldest task %v, the last one is %v", p.starts, x.queue, oldest.ref, x.it.AttemptRef)
	}
}

// inOrder checks the order of queues, priorities and owners. Without an older task that could have
// started, it may be the turn by age.
func (o *simOrder) inOrder(x *simStart, waiting []simCandidate, isOlder bool, f *simFleet) {
	owner := x.job.Header.GetOwner()
	for i := range waiting {
		c := &waiting[i]
		switch {
		case c.queue != x.queue:
			if f.hasCapacity(c.queue) && f.holdsMore(x.queue, c.queue) {
				o.fail("%v was started in queue %s, while %v waits in queue %s: %v", x.it.AttemptRef, x.queue, c.ref, c.queue, f)
			}
		case !isOlder || !f.hasCapacity(x.queue):
		case c.priority > x.priority:
			o.fail("%v with priority %v was started while %v with priority %v waits in queue %s", x.it.AttemptRef, x.priority, c.ref, c.priority, c.queue)
		case c.priority == x.priority && f.ownerHoldsMore(x.queue, owner, c.owner):
			o.fail("%v of owner %q was started while %v of owner %q waits in queue %s: %v", x.it.AttemptRef, owner, c.ref, c.owner, c.queue, f)
		}
	}
}
