package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// Drain keeps the worker of a name from being given anything new, whether it is
// up or not, until Undrain. What it runs when deadline has passed, by the wall
// clock and whoever leads then, is ended and handed back without burning a
// retry. Once it returns nothing new reaches the worker. Draining again replaces
// deadline and reason. Errors: *RejectedError with NoSuchWorker, *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Drain(ctx context.Context, name string, deadline time.Duration, reason string) error {
	_, err := s.askDrain(ctx, &drainRequest{name: name, drain: true, deadline: deadline, reason: reason})
	return err
}

// Undrain lets the worker of a name work again; already means that it did not
// drain. Errors as for Drain.
func (s *Sequencer) Undrain(ctx context.Context, name string) (already bool, err error) {
	return s.askDrain(ctx, &drainRequest{name: name})
}

func (s *Sequencer) askDrain(ctx context.Context, q *drainRequest) (already bool, err error) {
	q.answer = make(chan requestResult, 1)
	if err := s.inbox.put(classWorker, q); err != nil {
		return false, err
	}
	select {
	case r := <-q.answer:
		return r.already, r.err
	case <-ctx.Done():
		return false, cause(ctx)
	}
}

type drainRequest struct {
	name     string
	drain    bool
	deadline time.Duration
	reason   string
	answer   chan requestResult // size 1: the asker may have gone
}

func (q *drainRequest) refuse(err error) { q.answer <- requestResult{err: err} }

func (q *drainRequest) run(s *Sequencer, b *batch) bool {
	var result requestResult
	if known := s.view.WorkerByName(q.name); known == nil {
		result.err = &RejectedError{Reason: fsm.WorkerNotFound}
	} else {
		var op fsm.Op = &fsm.UndrainWorker{ID: known.ID}
		if q.drain {
			op = &fsm.DrainWorker{ID: known.ID, Until: b.draft.NowMS() + q.deadline.Milliseconds(), Reason: q.reason}
		}
		r := b.draft.Do(op)
		if r == fsm.Accepted {
			s.drainChanged(b, known.ID)
		}
		result.already = r == fsm.AlreadyEnded
		if r != fsm.Accepted && !result.already {
			result.err = &RejectedError{Reason: r}
		}
	}
	b.then(func(_ uint64, err error) {
		if err != nil {
			result = requestResult{err: err}
		}
		q.answer <- result
	})
	return true
}

// drainChanged heeds a new order to drain, or its end.
func (s *Sequencer) drainChanged(b *batch, id fsm.WorkerID) {
	known, w := s.view.Worker(id), s.workers[id]
	s.cfg.Logger.Info("worker drains by order", "worker", known.Name, "worker_id", uint32(id),
		"draining", known.Drains(), "until_ms", known.DrainUntil, "reason", known.DrainReason)
	if w == nil {
		return
	}
	s.sched.SetAccepting(scheduler.WorkerID(id), s.accepting(w))
	if w.session != nil {
		b.to(w.session).Drain = &dtaskv1.DrainOrder{Draining: known.Drains()}
	}
}

// accepting reports whether a worker may be given anything.
func (s *Sequencer) accepting(w *worker) bool {
	known := s.view.Worker(w.id)
	return w.session != nil && !w.draining && known != nil && !known.Drains()
}

// drainedBy reports whether the deadline of a worker's drain has passed.
func (s *Sequencer) drainedBy(b *batch, id fsm.WorkerID) bool {
	known := s.view.Worker(id)
	return known != nil && known.Drains() && b.draft.NowMS() >= known.DrainUntil
}

// sweepDrained asks for the end of an attempt on a worker that is to be empty,
// and ends it from here when the worker lets the time for that pass. An
// at-most-once attempt that has begun then is lost, when its lease has ended.
func (s *Sequencer) sweepDrained(b *batch, w *worker, a fsm.AttemptRef) {
	x := w.held.find(a)
	if x.drained == 0 {
		x.drained = b.at
		b.stop(w.session, a, dtaskv1.StopReason_STOP_REASON_DRAINED)
		return
	}
	limit := s.policy(a.TaskRef).killGrace + s.cfg.TimeoutSlack
	if t, _ := s.view.Task(a.TaskRef); t.StartLogged {
		limit = max(limit, s.cfg.Lease)
	}
	if b.at.since(x.drained) <= limit {
		return
	}
	s.stopHeld(b, w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
	s.cfg.Totals.Requeues.Add(1)
	item := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
	if b.draft.Requeue(item, false) == fsm.WrongState {
		b.draft.Lose(item)
	}
}
