package sequencer

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// workerTable holds the workers that are up, and the attempts that they hold.
type workerTable struct {
	cfg      *Config
	sched    *scheduler.Scheduler
	policies *policyTable
	leases   *leases
	settling settling
	running  observations
	byID     map[fsm.WorkerID]*worker
	stopping map[fsm.JobID]int // by job: its stopped attempts that workers hold
	// revocable are the workers with revoke set, and some that are gone or whose
	// slots are free again.
	revocable []fsm.WorkerID
}

// worker is what a term knows of a worker that is up.
type worker struct {
	id          fsm.WorkerID
	name        string
	incarnation string
	session     Session   // nil while it has none
	attachedAt  monoTime  // when it got its last session
	host, peer  string    // as in the hello of its last session
	lockID      string    // likewise
	leaving     bool      // the worker reported that it shuts down
	deadline    time.Time // without a session: when it is marked down
	held        holdings
	prefetch    prefetch
	started     int       // of held: those that run longer than a short task
	revoke      bool      // it will be asked to release what waits there for a slot
	assignments uint64    // number of assignments in this term
	assignedAt  time.Time // last assignment
	stealAsked  time.Time // last steal request after which it has released nothing yet

	batch   uint64 // number of the last batch with a message to it
	message int    // position of the message in that batch
}

// attached returns a worker if this is its current session.
func (t *workerTable) attached(id fsm.WorkerID, session Session) *worker {
	if w := t.byID[id]; w != nil && w.session == session {
		return w
	}
	return nil
}

// named returns a worker that is up by its name, or nil.
func (t *workerTable) named(v *fsm.State, name string) *worker {
	if known := v.WorkerByName(name); known != nil {
		return t.byID[known.ID]
	}
	return nil
}

// rebuild adds a worker at the start of a term. It gets no tasks until it has a
// session.
func (t *workerTable) rebuild(w *fsm.Worker) {
	t.byID[w.ID] = &worker{id: w.ID, name: w.Name, incarnation: w.Incarnation, prefetch: newPrefetch()}
	t.sched.AddWorker(scheduler.WorkerID(w.ID), capacity(w.Slots, w.Resources, w.Labels))
	t.byID[w.ID].prefetch.slots = int(w.Slots)
	t.sched.SetAccepting(scheduler.WorkerID(w.ID), false)
}

// rebuildAttempt adds a live attempt at the start of a term. If its worker is
// down, the attempt can only be an at-most-once attempt, or one with a named limit, that
// waits for the end of its lease.
func (t *workerTable) rebuildAttempt(b *batch, h fsm.HeldAttempt, started bool) {
	w := t.byID[h.Worker]
	if w == nil {
		t.leases.start(b, h, t.policies.classOfAttempt(b.view, h.AttemptRef, t.policies.of(b.view, h.TaskRef)), true)
		return
	}
	t.hold(b, w, h.AttemptRef, started).unconfirmed = true
}

// hold adds an attempt that was assigned earlier. The pointer is valid until the worker holds another
// one, or one less.
func (t *workerTable) hold(b *batch, w *worker, a fsm.AttemptRef, started bool) *held {
	x, p := w.held.add(a), t.policies.of(b.view, a.TaskRef)
	x.assigned, x.class, x.priority = b.at, t.policies.classOfAttempt(b.view, a, p), p.priority
	if l, ok := t.leases.byRef[a]; ok {
		x.class = l.class // the state may not have its job any more, and it still counts towards limits
	}
	x.observed = t.running.has(a) // its worker may have held it before, until it was lost
	if started {
		x.started, x.progressed = b.at, b.at
		w.started++
	}
	t.sched.Occupy(scheduler.WorkerID(w.id), x.class, x.priority)
	t.mayYield(b.view, w, x)
	return x
}

// updateAccepting tells the scheduler whether a worker may get assignments.
func (t *workerTable) updateAccepting(v *fsm.State, w *worker) {
	known := v.Worker(w.id)
	t.sched.SetAccepting(scheduler.WorkerID(w.id), w.session != nil && !w.leaving && known != nil && !known.Drains())
}

// release removes an attempt that a worker no longer holds, and requeues it. An
// at-most-once attempt that has started is lost instead. lost means that the
// attempt may have run on a worker that went down: a task on which too many
// workers went down becomes a dead letter, so that a task that ends its worker
// does not end one after another.
func (t *workerTable) release(b *batch, w *worker, a fsm.AttemptRef, lost bool) {
	t.forget(w, a)
	t.running.forget(a)
	t.requeueLive(b, fsm.HeldAttempt{AttemptRef: a, Worker: w.id}, lost)
}

// requeueLive is release for an attempt that no worker is known to hold.
func (t *workerTable) requeueLive(b *batch, h fsm.HeldAttempt, lost bool) {
	if !b.view.Live(h) {
		return
	}
	if x, _ := b.view.Task(h.TaskRef); lost && !x.StartLogged && int(x.Losses)+1 >= t.cfg.MaxLosses {
		text := fmt.Sprintf("%d workers went down while running it", x.Losses+1)
		b.entry.Fail(fsm.FailItem{HeldAttempt: h, Next: fsm.NextDead, Error: text})
		return
	}
	requeueOrLose(b, h, lost)
}

// requeueOrLose requeues an attempt; an at-most-once attempt that has started is
// lost instead.
func requeueOrLose(b *batch, h fsm.HeldAttempt, lost bool) {
	if requeue(b, h, lost) == fsm.WrongState {
		b.entry.Lose(h)
	}
}

// requeue requeues an attempt and counts it: as a loss if its worker went down
// while it ran, and otherwise as a requeue, which is not a failure.
func requeue(b *batch, h fsm.HeldAttempt, lost bool) fsm.Reason {
	r := b.entry.Requeue(h, lost)
	switch {
	case r != fsm.Accepted:
	case lost:
		b.cfg.Totals.Losses.Add(1)
	default:
		b.cfg.Totals.Requeues.Add(1)
	}
	return r
}

// forget removes an attempt from a worker and frees its slot.
func (t *workerTable) forget(w *worker, a fsm.AttemptRef) {
	t.take(w, a)
}

// take removes an attempt from a worker, frees its slot, and returns it; ok is
// false if the worker does not hold it.
func (t *workerTable) take(w *worker, a fsm.AttemptRef) (x held, ok bool) {
	x, ok = w.held.remove(a)
	if !ok {
		return x, false
	}
	t.stopped(&x)
	t.keepsPlace(w, &x)
	if x.started != 0 {
		w.started--
		t.prefetchChanged(w)
	}
	t.sched.Release(scheduler.WorkerID(w.id), x.class, x.priority)
	return x, true
}

// began records that an attempt runs.
func (t *workerTable) began(w *worker, x *held, at monoTime) {
	if x.started == 0 {
		w.started++
		defer t.prefetchChanged(w)
	}
	x.started = at
}

// startLogged reports whether an at-most-once attempt is live and its start is
// logged.
func startLogged(v *fsm.State, h fsm.HeldAttempt) bool {
	t, ok := v.Task(h.TaskRef)
	return ok && t.StartLogged && v.Live(h)
}

// needsLease reports whether an attempt may run until its lease ends, and matters until then:
// it must not be repeated, or counts towards a named limit. The latter does so even if its job
// has ended and is not in the state any more.
func (t *workerTable) needsLease(v *fsm.State, w *worker, x *held) bool {
	return t.sched.UsesLimits(x.class) || startLogged(v, fsm.HeldAttempt{AttemptRef: x.AttemptRef, Worker: w.id})
}

// remove removes a worker whose process is gone or unreachable. Attempts that
// may be repeated are requeued now, the others are lost when their lease
// ends. Those that count towards a named limit are requeued then, too.
func (t *workerTable) remove(b *batch, w *worker) {
	slots := 0
	if known := b.view.Worker(w.id); known != nil {
		slots = int(known.Slots)
	}
	mayHaveRun := w.held.oldest(slots)
	for _, a := range w.held.sorted() {
		if x := w.held.find(a); t.needsLease(b.view, w, x) {
			t.leases.start(b, fsm.HeldAttempt{AttemptRef: a, Worker: w.id}, x.class, mayHaveRun[a])
			t.stopped(x)
			continue
		}
		t.release(b, w, a, mayHaveRun[a])
	}
	delete(t.byID, w.id)
	t.sched.RemoveWorker(scheduler.WorkerID(w.id))
	t.settling.removed(b, w.id)
}

// stop ends an attempt by decision of the leader. Its slot stays taken until
// the worker reports that nothing is left of it.
func (t *workerTable) stop(b *batch, w *worker, a fsm.AttemptRef, why dtaskv1.StopReason) {
	t.mustStop(w, w.held.find(a))
	t.running.forget(a)
	b.stop(w, a, why)
}

// attemptEnded stops a live attempt that an operation of the batch has ended.
func (t *workerTable) attemptEnded(b *batch, h fsm.HeldAttempt) {
	t.leases.ended(h.AttemptRef)
	t.running.forget(h.AttemptRef)
	if w := t.byID[h.Worker]; w != nil && w.held.find(h.AttemptRef) != nil {
		t.stop(b, w, h.AttemptRef, dtaskv1.StopReason_STOP_REASON_CANCELLED)
	}
}

// isStopping reports whether any worker still holds a stopped attempt of a job.
func (t *workerTable) isStopping(id fsm.JobID) bool { return t.stopping[id] > 0 }

// mustStop notes that the worker of an attempt must stop it.
func (t *workerTable) mustStop(w *worker, x *held) {
	t.keepsPlace(w, x)
	if !x.stopped {
		x.stopped = true
		t.stopping[x.Job]++
	}
}

// stopped is called for an attempt that its worker no longer holds.
func (t *workerTable) stopped(x *held) {
	if !x.stopped {
		return
	}
	if t.stopping[x.Job]--; t.stopping[x.Job] == 0 {
		delete(t.stopping, x.Job)
	}
}

// gauge sets the gauges of workers and attempts.
func (t *workerTable) gauge() {
	sessions, attempts, orphaned := int64(0), int64(0), int64(0)
	for _, w := range t.byID {
		attempts += int64(w.held.len())
		if w.session != nil {
			sessions++
		} else {
			orphaned += int64(w.held.len())
		}
	}
	t.cfg.Totals.Orphaned.Store(orphaned)
	t.cfg.Totals.Workers.Store(sessions)
	t.cfg.Totals.Held.Store(attempts)
}

// ReturnUndelivered requeues assignments that could not be sent because their
// job is gone.
func (s *Sequencer) ReturnUndelivered(ctx context.Context, id fsm.WorkerID, from Session, attempts []fsm.AttemptRef) error {
	return s.inbox.putWait(ctx, classWorker, action(func(b *batch) {
		if w := s.workers.attached(id, from); w != nil {
			for _, a := range attempts {
				if w.held.find(a) != nil {
					s.workers.release(b, w, a, false)
				}
			}
		}
	}))
}

// Workers returns the soft state of the workers with these ids that are up, or
// of all if none is given. It returns nil if the sequencer does not answer
// within a second.
func (s *Sequencer) Workers(ids ...fsm.WorkerID) map[fsm.WorkerID]WorkerStatus {
	answer := make(chan map[fsm.WorkerID]WorkerStatus, 1) // the caller may have left
	query := action(func(*batch) {
		list := make(map[fsm.WorkerID]WorkerStatus, len(ids))
		if len(ids) == 0 {
			for id := range s.workers.byID {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			if w := s.workers.byID[id]; w != nil {
				list[id] = WorkerStatus{Attached: w.session != nil, Draining: w.leaving, Held: w.held.len(), Prefetch: w.prefetch.limit}
			}
		}
		answer <- list
	})
	if s.inbox.put(classWorker, query) != nil {
		return nil
	}
	select {
	case list := <-answer:
		return list
	case <-time.After(time.Second):
		return nil
	}
}
