package sequencer

import (
	"context"
	"slices"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Attach makes a session the current one of its worker, and returns after the
// entry that registers the worker is committed. Errors: *NameInUseError,
// *RejectedError, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Attach(ctx context.Context, h Hello, to Session) (Welcome, error) {
	welcome, err := do(ctx, s.inbox, classWorker, func(b *batch) (Welcome, error) {
		welcome, err := s.workers.attach(b, h, to)
		if err == nil {
			s.liveness.checkBy(to.LastContact().Add(s.cfg.LivenessTimeout))
		}
		return welcome, err
	})
	if err != nil && ctx.Err() != nil {
		// The request may be executed already, or may still be. An item behind
		// it undoes it.
		//nolint:contextcheck // must reach the sequencer after ctx has ended
		s.detach(to, func() *worker { return s.workers.named(s.view, h.Name) })
	}
	return welcome, err
}

// Detach reports that a session has ended. Its worker is marked down if it does
// not return within the liveness timeout; another process may use its name at
// once.
func (s *Sequencer) Detach(id fsm.WorkerID, gone Session) {
	s.detach(gone, func() *worker { return s.workers.byID[id] })
}

func (s *Sequencer) detach(gone Session, find func() *worker) {
	// The end of the term ends the wait.
	_ = s.inbox.putWait(context.Background(), classWorker, action(func(b *batch) {
		if w := find(); w != nil && w.session == gone {
			w.session = nil
			w.deadline = gone.LastContact().Add(s.cfg.LivenessTimeout)
			s.liveness.checkBy(w.deadline)
			s.workers.updateAccepting(b.view, w)
		}
	}))
}

func (t *workerTable) attach(b *batch, h Hello, session Session) (Welcome, error) {
	w := t.named(b.view, h.Name)
	if err := t.checkName(b, w, h); err != nil {
		return Welcome{}, err
	}
	if w != nil && w.session != nil && w.session != session {
		w.session.Close(errReplaced)
	}
	if w != nil && w.incarnation != h.Incarnation {
		t.remove(b, w) // its process is gone, with all attempts that it held
		w = nil
	}
	known, id := b.view.WorkerByName(h.Name), b.view.NextWorker()
	if known != nil {
		id = known.ID
	}
	register := &fsm.RegisterWorker{
		ID: id, Name: h.Name, Incarnation: h.Incarnation, Slots: h.Slots, Labels: h.Labels,
		Resources: h.Resources, Version: h.Version, Address: h.Address,
	}
	if w == nil || !isRegistered(known, register) {
		if r := b.entry.Do(register); r != fsm.Accepted {
			if w == nil {
				b.entry.Do(&fsm.MarkWorkerDown{ID: id, Reason: "replaced"}) // rejected if it is not up
			}
			return Welcome{}, &RejectedError{Reason: r}
		}
	}
	if w == nil {
		w = &worker{id: id, name: h.Name, incarnation: h.Incarnation, prefetch: newPrefetch()}
		t.byID[id] = w
	}
	w.session, w.leaving = session, false
	w.host, w.peer, w.lockID, w.attachedAt = h.Address, h.Peer, h.LockID, b.at
	w.prefetch.slots, w.prefetch.limit, w.prefetch.taken = int(h.Slots), int(h.Prefetch), false
	t.sched.AddWorker(scheduler.WorkerID(id), capacity(h.Slots, h.Resources, h.Labels))
	t.sched.SetPrefetch(scheduler.WorkerID(id), w.prefetch.current())
	t.updateAccepting(b.view, w)
	stop := t.reconcile(b, w, h)
	t.prefetchChanged(w) // an earlier leader, or the last session, may not have revoked what waits
	t.settling.attached(b, id)
	return Welcome{Worker: id, Stop: stop, Draining: b.view.Worker(id).Drains()}, nil
}

// checkName refuses a process whose name another one uses. A process that holds
// the lock of the other one's directory is its successor: the other one is dead,
// even if its connection still looks healthy.
func (t *workerTable) checkName(b *batch, w *worker, h Hello) error {
	if w == nil || w.session == nil || w.lockID != "" && w.lockID == h.LockID {
		return nil
	}
	silent := b.now.Sub(w.session.LastContact())
	if w.incarnation != h.Incarnation && silent < t.cfg.LivenessTimeout {
		return &NameInUseError{Name: h.Name, Host: w.host, Address: w.peer, Silent: max(silent, 0)}
	}
	return nil
}

func capacity(slots uint32, resources []fsm.Resource, labels []fsm.Label) scheduler.Capacity {
	c := scheduler.Capacity{Slots: int(slots)}
	for _, r := range resources {
		c.Resources = append(c.Resources, scheduler.Quantity{Name: r.Name, Amount: r.Amount})
	}
	for _, l := range labels {
		switch l.Key {
		case fsm.TypeLabel:
			c.Types = append(c.Types, l.Value)
		case fsm.NamespaceLabel:
			c.Namespaces = append(c.Namespaces, schedulerNamespace(l.Value))
		case fsm.ReservedLabel:
			c.Reserved = true
		case fsm.SecretLabel:
			c.Labels = append(c.Labels, secretLabel(l.Value))
		default:
			c.Labels = append(c.Labels, scheduler.Label{Name: l.Key, Value: l.Value})
		}
	}
	return c
}

// isRegistered reports whether a registration would change nothing.
func isRegistered(w *fsm.Worker, r *fsm.RegisterWorker) bool {
	return w != nil && w.State == fsm.WorkerUp && w.Incarnation == r.Incarnation && w.Slots == r.Slots &&
		slices.Equal(w.Labels, r.Labels) && slices.Equal(w.Resources, r.Resources) &&
		w.Version == r.Version && w.Address == r.Address
}

// reconcile compares the attempts that a worker holds with those that it should
// hold. An attempt that only the state has was never started by this
// incarnation: it is requeued. An attempt that only the worker has is stopped;
// its slot stays taken until it has ended.
func (t *workerTable) reconcile(b *batch, w *worker, h Hello) (stop []fsm.AttemptRef) {
	present := make(map[fsm.AttemptRef]bool, len(h.Held)+len(h.Ended))
	for _, a := range h.Ended {
		present[a] = true
		if x := w.held.find(a); x != nil {
			x.unconfirmed = false
		}
	}
	for _, a := range h.Held {
		present[a] = true
		if w.held.find(a) == nil {
			task, known := b.view.Task(a.TaskRef)
			t.hold(b, w, a, task.StartLogged)
			if !known {
				t.settling.unknown(b)
			}
		}
		x := w.held.find(a)
		if !b.view.Live(fsm.HeldAttempt{AttemptRef: a, Worker: w.id}) {
			t.mustStop(w, x)
			stop = append(stop, a)
		}
		t.leases.end(a)
		x.unconfirmed = false
		w.held.resume(x) // the worker may not have received the stop
		t.mayYield(b.view, w, x)
	}
	for _, a := range w.held.sorted() {
		h := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
		switch {
		case present[a]:
		case w.held.find(a).unconfirmed && t.needsLease(b.view, w, w.held.find(a)):
			// An earlier process under this name may run it until its lease
			// ends.
			t.leases.start(b, h, w.held.find(a).class, false)
			t.forget(w, a)
		default:
			t.release(b, w, a, false)
		}
	}
	return stop
}
