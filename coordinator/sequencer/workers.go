package sequencer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// worker is what a term knows of a worker that is up.
type worker struct {
	id          fsm.WorkerID
	name        string
	incarnation string
	session     Session   // nil while it has none
	draining    bool      // says that it leaves
	deadline    time.Time // without a session: when it is given up
	held        holdings
	pace
	fed   time.Time // when it was last given anything
	asked time.Time // when it was asked to give something back and has not yet
	given uint64    // assignments so far

	batch uint64 // the last one that gave it anything
	place int    // of its message in that batch
}

// orphan is an at-most-once attempt that has begun on a worker that was lost.
type orphan struct {
	worker fsm.WorkerID
	class  scheduler.ClassID
	until  time.Time // the end of its lease; it may have been an orphan before, and have that one's timer
}

// Attach makes a session the way to its worker, once the entry that says so is
// committed. Errors: *NameInUseError, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) Attach(ctx context.Context, h Hello, to Session) (Welcome, error) {
	a := &attach{hello: h, session: to, answer: make(chan attached, 1)}
	if err := s.inbox.put(classWorker, a); err != nil {
		return Welcome{}, err
	}
	select {
	case r := <-a.answer:
		return r.welcome, r.err
	case <-ctx.Done():
		// It may be done already, or be done yet; what follows it in the inbox
		// finds out.
		s.detach(to, func() *worker { //nolint:contextcheck // must reach the sequencer after ctx has ended
			if known := s.view.WorkerByName(h.Name); known != nil {
				return s.workers[known.ID]
			}
			return nil
		})
		return Welcome{}, cause(ctx)
	}
}

// Detach says that a session has ended. Its worker is given up when it stays
// silent; its name is free at once.
func (s *Sequencer) Detach(id fsm.WorkerID, gone Session) {
	s.detach(gone, func() *worker { return s.workers[id] })
}

func (s *Sequencer) detach(gone Session, find func() *worker) {
	// Must reach the sequencer after the stream's context has ended; the term's
	// end ends the wait.
	_ = s.inbox.putWait(context.Background(), classWorker, action(func(*batch) {
		if w := find(); w != nil && w.session == gone {
			w.session = nil
			w.deadline = gone.LastContact().Add(s.cfg.LivenessTimeout)
			s.mayBeSilent(w.deadline)
			s.sched.SetAccepting(scheduler.WorkerID(w.id), s.accepting(w))
		}
	}))
}

// ReturnUndelivered takes back assignments that could not be sent because their job is
// gone.
func (s *Sequencer) ReturnUndelivered(ctx context.Context, id fsm.WorkerID, from Session, attempts []fsm.AttemptRef) error {
	return s.inbox.putWait(ctx, classWorker, action(func(b *batch) {
		if w := s.workers[id]; w != nil && w.session == from {
			for _, a := range attempts {
				if w.held.find(a) != nil {
					s.drop(b, w, a, false)
				}
			}
		}
	}))
}

// Workers is the soft state of those workers that are up, of all if none is named;
// nil if the sequencer does not answer within a second.
func (s *Sequencer) Workers(ids ...fsm.WorkerID) map[fsm.WorkerID]WorkerStatus {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := make(map[fsm.WorkerID]WorkerStatus, len(ids))
	add := func(id fsm.WorkerID, w *worker) {
		list[id] = WorkerStatus{Attached: w.session != nil, Draining: w.draining, Held: w.held.len(), Prefetch: w.prefetch}
	}
	err := s.ask(ctx, func() {
		for _, id := range ids {
			if w := s.workers[id]; w != nil {
				add(id, w)
			}
		}
		if len(ids) > 0 {
			return
		}
		for id, w := range s.workers {
			add(id, w)
		}
	})
	if err != nil {
		return nil
	}
	return list
}

// action is a small item that always fits.
type action func(b *batch)

func (a action) run(_ *Sequencer, b *batch) bool { a(b); return true }
func (a action) refuse(error)                    {}

type attach struct {
	hello   Hello
	session Session
	answer  chan attached // size 1: the asker may have gone
}

type attached struct {
	welcome Welcome
	err     error
}

func (a *attach) refuse(err error) { a.answer <- attached{err: err} }

func (a *attach) run(s *Sequencer, b *batch) bool {
	h := a.hello
	known := s.view.WorkerByName(h.Name)
	var w *worker
	if known != nil {
		w = s.workers[known.ID]
	}
	if w != nil && w.session != nil && w.incarnation != h.Incarnation && b.now.Sub(w.session.LastContact()) < s.cfg.LivenessTimeout {
		a.refuse(&NameInUseError{Name: h.Name})
		return true
	}
	if w != nil && w.session != nil && w.session != a.session {
		w.session.Close(errReplaced)
	}
	if w != nil && w.incarnation != h.Incarnation {
		s.giveUp(b, w) // its old process is gone, and what that held with it
		w = nil
	}
	id := s.view.NextWorker()
	if known != nil {
		id = known.ID
	}
	join := &fsm.RegisterWorker{
		ID: id, Name: h.Name, Incarnation: h.Incarnation, Slots: h.Slots, Labels: h.Labels,
		Resources: h.Resources, Version: h.Version, Address: h.Address,
	}
	if w == nil || !sameOffer(known, join) {
		if r := b.draft.Do(join); r != fsm.Accepted {
			if w == nil {
				b.draft.Do(&fsm.MarkWorkerDown{ID: id, Reason: "replaced"}) // refused if it is not up
			}
			a.refuse(&RejectedError{Reason: r})
			return true
		}
	}
	if w == nil {
		w = &worker{id: id, name: h.Name, incarnation: h.Incarnation, pace: newPace()}
		s.workers[id] = w
	}
	w.session, w.draining, w.prefetch = a.session, false, int(h.Prefetch)
	s.mayBeSilent(a.session.LastContact().Add(s.cfg.LivenessTimeout))
	s.sched.AddWorker(scheduler.WorkerID(id), capacity(join))
	s.sched.SetPrefetch(scheduler.WorkerID(id), w.ahead())
	s.sched.SetAccepting(scheduler.WorkerID(id), s.accepting(w))
	stop, draining := s.reconcile(b, w, h), s.view.Worker(id).Drains()
	b.then(func(_ uint64, err error) {
		a.answer <- attached{welcome: Welcome{Worker: id, Stop: stop, Draining: draining}, err: err}
	})
	return true
}

func capacity(j *fsm.RegisterWorker) scheduler.Capacity {
	c := scheduler.Capacity{Slots: int(j.Slots)}
	for _, r := range j.Resources {
		c.Resources = append(c.Resources, scheduler.Quantity{Name: r.Name, Amount: r.Amount})
	}
	for _, l := range j.Labels {
		c.Labels = append(c.Labels, scheduler.Label{Name: l.Key, Value: l.Value})
	}
	return c
}

// sameOffer reports whether a worker that is up says again what is known.
func sameOffer(w *fsm.Worker, j *fsm.RegisterWorker) bool {
	return w != nil && w.State == fsm.WorkerUp && w.Incarnation == j.Incarnation && w.Slots == j.Slots &&
		slices.Equal(w.Labels, j.Labels) && slices.Equal(w.Resources, j.Resources) &&
		w.Version == j.Version && w.Address == j.Address
}

// reconcile compares what a worker holds with what it should hold. What only
// the state knows was never started by this incarnation: it is put back. What
// only the worker knows is stopped; its slot is taken until it has ended.
func (s *Sequencer) reconcile(b *batch, w *worker, h Hello) (stop []fsm.AttemptRef) {
	present := make(map[fsm.AttemptRef]bool, len(h.Held)+len(h.Ended))
	for _, a := range h.Ended {
		present[a] = true
		if x := w.held.find(a); x != nil {
			x.rebuilt = false
		}
	}
	for _, a := range h.Held {
		present[a] = true
		item := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
		if w.held.find(a) == nil {
			s.hold(b, w, a)
		}
		x := w.held.find(a)
		if !s.view.Live(item) {
			x.stopped = true
			stop = append(stop, a)
		}
		s.forgetOrphan(a)
		x.drained, x.rebuilt = 0, false // it may not have heard of a drain
	}
	for _, a := range w.held.sorted() {
		switch {
		case present[a]:
		case w.held.find(a).rebuilt && s.begun(fsm.HeldAttempt{AttemptRef: a, Worker: w.id}):
			s.leave(b, w, a)
		default:
			s.drop(b, w, a, false)
		}
	}
	return stop
}

// hold takes up an attempt that a worker says it has.
func (s *Sequencer) hold(b *batch, w *worker, a fsm.AttemptRef) {
	x := held{AttemptRef: a, class: s.classOf(a.TaskRef, s.policy(a.TaskRef)), given: b.at}
	if t, _ := s.view.Task(a.TaskRef); t.StartLogged {
		x.began, x.beat = b.at, b.at
	}
	w.held.add(x)
	s.sched.Occupy(scheduler.WorkerID(w.id), x.class)
}

// drop takes an attempt from a worker that does not have it any more, or is
// gone: it is put back, or lost if it must not be repeated. lost says that it
// may have run there: a task that takes one worker after the other with it ends
// as dead.
func (s *Sequencer) drop(b *batch, w *worker, a fsm.AttemptRef, lost bool) {
	x, _ := w.held.remove(a)
	s.sched.Release(scheduler.WorkerID(w.id), x.class)
	s.watch.forget(a)
	item := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
	if !s.view.Live(item) {
		return
	}
	if t, _ := s.view.Task(a.TaskRef); lost && !t.StartLogged && int(t.Losses)+1 >= s.cfg.MaxLosses {
		b.draft.Fail(fsm.FailItem{HeldAttempt: item, Next: fsm.NextDead, Error: fmt.Sprintf("%d workers were lost while it ran", t.Losses+1)})
		return
	}
	s.cfg.Totals.Requeues.Add(1)
	if b.draft.Requeue(item, lost) == fsm.WrongState {
		b.draft.Lose(item)
	}
}

// begun reports whether an at-most-once attempt is live and its start is logged.
func (s *Sequencer) begun(item fsm.HeldAttempt) bool {
	t, ok := s.view.Task(item.TaskRef)
	return ok && t.StartLogged && s.view.Live(item)
}

// leave takes a begun attempt from a worker that does not have it, for a former
// process under its name that may run it until its lease ends.
func (s *Sequencer) leave(b *batch, w *worker, a fsm.AttemptRef) {
	x, _ := w.held.remove(a)
	s.sched.Release(scheduler.WorkerID(w.id), x.class)
	s.orphan(b, fsm.HeldAttempt{AttemptRef: a, Worker: w.id})
}

// giveUp makes a worker down: attempts that may be repeated are put back at
// once, the others when their lease has ended.
func (s *Sequencer) giveUp(b *batch, w *worker) {
	for _, a := range w.held.sorted() {
		item := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
		if s.begun(item) {
			s.orphan(b, item)
			continue
		}
		s.drop(b, w, a, w.held.find(a).began != 0)
	}
	delete(s.workers, w.id)
	s.sched.RemoveWorker(scheduler.WorkerID(w.id))
}

// orphan waits for the end of an at-most-once attempt's lease.
func (s *Sequencer) orphan(b *batch, item fsm.HeldAttempt) {
	until := b.now.Add(s.cfg.Lease)
	class := s.classOf(item.TaskRef, s.policy(item.TaskRef))
	s.sched.Reserve(class) // it may run still
	s.orphans[item.AttemptRef] = orphan{worker: item.Worker, until: until, class: class}
	s.timers.add(timer{at: until, kind: timerLease, task: item.TaskRef, attempt: item.Attempt})
}

// forgetOrphan waits no more for the end of an attempt's lease, if anybody did.
func (s *Sequencer) forgetOrphan(a fsm.AttemptRef) {
	if o, ok := s.orphans[a]; ok {
		delete(s.orphans, a)
		s.sched.Unreserve(o.class)
	}
}

// stopHeld ends an attempt by this replica's own clock.
func (s *Sequencer) stopHeld(b *batch, w *worker, a fsm.AttemptRef, why dtaskv1.StopReason) {
	w.held.find(a).stopped = true
	s.watch.forget(a)
	b.stop(w.session, a, why)
}
