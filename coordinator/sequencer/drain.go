package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Drain stops assigning work to the named worker until Undrain, whether it is
// up or not. Attempts that still run when deadline has passed, by the wall
// clock and under any leader, are stopped and requeued without counting as a
// retry. After Drain returns, no new assignment reaches the worker. A second
// Drain replaces deadline and reason. Errors: *RejectedError with
// WorkerNotFound, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Drain(ctx context.Context, name string, deadline time.Duration, reason string) error {
	_, err := do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		until := b.entry.NowMS() + deadline.Milliseconds()
		return s.workers.setDrain(b, name, func(id fsm.WorkerID) fsm.Op {
			return &fsm.DrainWorker{ID: id, Until: until, Reason: reason}
		})
	})
	return err
}

// Undrain lets the named worker work again; already means that it was not
// draining. Errors as for Drain.
func (s *Sequencer) Undrain(ctx context.Context, name string) (already bool, err error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		return s.workers.setDrain(b, name, func(id fsm.WorkerID) fsm.Op { return &fsm.UndrainWorker{ID: id} })
	})
}

func (t *workerTable) setDrain(b *batch, name string, op func(fsm.WorkerID) fsm.Op) (already bool, err error) {
	known := b.view.WorkerByName(name)
	if known == nil {
		return false, &RejectedError{Reason: fsm.WorkerNotFound}
	}
	r := b.entry.Do(op(known.ID))
	if r == fsm.Accepted {
		t.drainChanged(b, known.ID)
	}
	return settled(r, r == fsm.AlreadyEnded)
}

// drainChanged applies a change of a worker's drain to its soft state.
func (t *workerTable) drainChanged(b *batch, id fsm.WorkerID) {
	known, w := b.view.Worker(id), t.byID[id]
	t.cfg.Logger.Info("worker drain changed by operator", "worker", known.Name, "worker_id", uint32(id),
		"draining", known.Drains(), "until_ms", known.DrainUntil, "reason", known.DrainReason)
	if w == nil {
		return
	}
	t.updateAccepting(b.view, w)
	if w.session != nil {
		b.to(w).Drain = &dtaskv1.DrainOrder{Draining: known.Drains()}
	}
}

// drainExpired reports whether the deadline of a worker's drain has passed.
func drainExpired(b *batch, id fsm.WorkerID) bool {
	known := b.view.Worker(id)
	return known != nil && known.Drains() && b.entry.NowMS() >= known.DrainUntil
}
