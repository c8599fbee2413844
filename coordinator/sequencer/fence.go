package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// errRevoked closes the session of a worker whose identity was revoked. It must not
// return.
var errRevoked = &RejectedError{Reason: fsm.IdentityRevoked}

// fencing ends what workers run that may not run anything any more. Others get their
// attempts at once, without waiting for the liveness timeout: the worker may continue for
// a moment, but nothing that it reports counts.
type fencing struct {
	workers *workerTable
	queue   []fenced // their sessions are closed; the batch had no capacity for more
}

type fenced struct {
	*worker

	why string // for users
}

// EndSession closes the session of the named worker with a reason, and requeues its
// attempts at once, for example because its credential has expired. ok is false if no
// worker with this name is up. It returns when that is committed. Errors: *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) EndSession(ctx context.Context, name string, reason error) (ok bool, err error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		w := s.workers.named(b.view, name)
		if w == nil {
			return false, nil
		}
		s.fencing.add(b, w, reason, "session ended: "+reason.Error())
		s.fencing.run(b)
		return true, nil
	})
}

// revoked fences the workers whose identities operations of the batch have revoked.
func (f *fencing) revoked(b *batch) {
	for _, id := range b.fx.RevokedWorkers {
		if w := f.workers.byID[id]; w != nil {
			f.add(b, w, errRevoked, fsm.IdentityRevoked.String())
			b.cfg.Logger.Warn("worker fenced: its identity was revoked", "worker", w.name, "worker_id", uint32(id))
		}
	}
	f.run(b)
}

// add closes the session of a worker and queues it. Its messages are not read from now
// on. If the batch is full, the liveness sweep may mark it down first.
func (f *fencing) add(b *batch, w *worker, reason error, why string) {
	if w.session != nil {
		w.session.Close(reason)
		w.session = nil
	}
	w.deadline = b.now
	f.workers.updateAccepting(b.view, w)
	f.queue = append(f.queue, fenced{w, why})
}

// run marks the queued workers down, and requeues their attempts, as far as the batch has
// capacity. A worker that has a session again was let in since, and keeps its attempts.
func (f *fencing) run(b *batch) {
	for len(f.queue) > 0 && !b.full() {
		w := f.queue[0]
		f.queue = f.queue[1:]
		if f.workers.byID[w.id] != w.worker || w.session != nil {
			continue
		}
		f.workers.remove(b, w.worker)
		b.entry.Do(&fsm.MarkWorkerDown{ID: w.id, Reason: w.why})
	}
}
