package sequencer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Submit is SubmitMany for one job.
func (s *Sequencer) Submit(ctx context.Context, sub Submission) (SubmitResult, error) {
	r := s.SubmitMany(ctx, []Submission{sub})[0]
	return r.SubmitResult, r.Err
}

// Audit compares the soft state with the one that a new term would rebuild from
// the same view, and returns all differences.
func (s *Sequencer) Audit(ctx context.Context) error {
	q := &query{done: make(chan struct{}), f: func(b *batch) error {
		s.absorb(b)
		cfg := s.cfg
		cfg.Machine = fsm.NewMachine()
		r, err := New(cfg)
		if err != nil {
			return err
		}
		r.view = s.view.Fork()
		again := r.batches.next(r.view)
		r.rebuild(again)
		for len(r.schedules.unarmed) > 0 {
			r.schedules.armSome(again)
		}
		return errors.Join(s.differsReady(r), s.differsTimers(r), s.differsGates(), s.differsHeld(r), s.differsCapacity(), s.differsQueues(r), s.differsLimits(), s.differsMemory(r))
	}}
	if !s.ask(ctx, q) {
		return nil // the term has ended: nothing to compare
	}
	return q.err
}

// Leaving reports whether a worker leaves, after all reports that were sent before.
func (s *Sequencer) Leaving(ctx context.Context, id fsm.WorkerID) (leaving bool) {
	q := &query{done: make(chan struct{}), f: func(*batch) error {
		w := s.workers.byID[id]
		leaving = w != nil && w.leaving
		return nil
	}}
	return s.ask(ctx, q) && leaving
}

// ask waits for a query. It reports whether it was answered.
func (s *Sequencer) ask(ctx context.Context, q *query) (answered bool) {
	if s.inbox.put(classWorker, q) != nil {
		return false
	}
	select {
	case <-q.done:
		return !q.refused
	case <-ctx.Done():
		return false
	}
}

// query reads the soft state. It doesn't cause an entry.
type query struct {
	f       func(b *batch) error
	done    chan struct{} // closed when the rest is set
	err     error
	refused bool
}

func (q *query) refuse(error) { q.refused = true; close(q.done) }

func (q *query) run(b *batch) bool {
	q.err = q.f(b)
	close(q.done)
	return true
}

func (s *Sequencer) readySet() map[scheduler.TaskRef]int {
	set := make(map[scheduler.TaskRef]int)
	for _, t := range s.dispatch.results.pending {
		if _, ready := s.view.Ready(t); ready {
			set[scheduler.TaskRef{Job: uint64(t.Job), Index: t.Index}]++
		}
	}
	for t := range s.dispatch.cleanups.until {
		if _, ready := s.view.Ready(t); ready {
			set[scheduler.TaskRef{Job: uint64(t.Job), Index: t.Index}]++
		}
	}
	s.dispatch.sched.Sweep(func(t scheduler.TaskRef) bool {
		if _, ready := s.view.Ready(fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index}); ready {
			set[t]++
		}
		return true
	})
	for t := range set { // a task has an entry for each alternative
		p := s.view.Policy(fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index})
		set[t] = (set[t] + len(p.GetAlternatives())) / (1 + len(p.GetAlternatives()))
	}
	return set
}

func (s *Sequencer) differsReady(r *Sequencer) error {
	var errs []error
	have, want := s.readySet(), r.readySet()
	for t, n := range have {
		if n != 1 || want[t] != 1 {
			errs = append(errs, fmt.Errorf("task %v has %d entries, rebuilt %d", t, n, want[t]))
		}
	}
	for t := range want {
		if have[t] == 0 {
			errs = append(errs, fmt.Errorf("ready task %v is missing", t))
		}
	}
	return errors.Join(errs...)
}

func (s *Sequencer) differsTimers(r *Sequencer) error {
	type key struct {
		kind    timerKind
		task    fsm.TaskRef
		attempt uint32
		due     int64
	}
	have := make(map[key][]time.Time) // several: those from before a retry of the job have no effect
	for _, t := range s.timers.h {
		k := key{t.kind, t.task, t.attempt, t.due}
		have[k] = append(have[k], t.at)
	}
	var errs []error
	for _, t := range r.timers.h {
		list, ok := have[key{t.kind, t.task, t.attempt, t.due}]
		near := func(at time.Time) bool {
			early := t.at.Sub(at) // rebuilt, waits are bounded from the new term on, so later
			switch t.kind {
			case timerDue:
				return early > -time.Millisecond
			case timerDeadline: // or it has passed, and waits until the clock is no longer in doubt
				return early > -time.Millisecond && early < maxJobTimer || early < 0 && time.Until(at) <= gateRetry
			default:
				return true
			}
		}
		switch {
		case t.kind == timerUpload: // for those of earlier terms
		case t.kind == timerSettled, t.kind == timerTokens: // see differsLimits
		case t.kind == timerTick && t.task.Job == 0: // it sets the other ones
		case t.kind == timerTick && slices.ContainsFunc(s.schedules.blocked, func(x *schedule) bool { return x.id == fsm.ScheduleID(t.task.Job) }):
		case t.kind == timerTick && slices.Contains(s.schedules.unarmed, fsm.ScheduleID(t.task.Job)):
		case t.kind == timerQueue && slices.Contains(s.dispatch.results.pending, t.task):
		case t.kind == timerQueue && s.dispatch.cleanups.holds(t.task): // it starts later
		case t.kind == timerQueue && !slices.ContainsFunc(list, s.dispatch.queued.until[t.task].Equal):
			errs = append(errs, fmt.Errorf("queue timeout of %v ends at %v, its timers are at %v", t.task, s.dispatch.queued.until[t.task], list))
		case !ok:
			errs = append(errs, fmt.Errorf("no timer of kind %d for %v", t.kind, t.task))
		case (t.kind == timerDue || t.kind == timerDeadline) && !slices.ContainsFunc(list, near):
			errs = append(errs, fmt.Errorf("timer of kind %d for %v is at %v, rebuilt %v", t.kind, t.task, list, t.at))
		}
	}
	return errors.Join(errs...)
}

// differsGates checks that something opens each gate.
func (s *Sequencer) differsGates() error {
	var errs []error
	for job := range s.view.Jobs(0) {
		if !job.Gated || job.Waiting || slices.Contains(s.gates.arrived, job.ID) {
			continue
		}
		timed := slices.ContainsFunc(s.timers.h, func(t timer) bool { return t.kind == timerGate && t.task.Job == job.ID })
		if key := fsm.ConcurrencyKey(job.Header); !timed && !slices.Contains(s.gates.keys.waiting[key], job.ID) {
			errs = append(errs, fmt.Errorf("nothing opens the gate of job %d", job.ID))
		}
	}
	return errors.Join(errs...)
}

func (s *Sequencer) differsHeld(r *Sequencer) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(s.workers.byID) != len(r.workers.byID) {
		bad("%d workers, rebuilt %d", len(s.workers.byID), len(r.workers.byID))
	}
	stopping := make(map[fsm.JobID]int)
	for id, w := range s.workers.byID {
		for _, x := range w.held.list {
			if x.stopped {
				stopping[x.Job]++
			}
		}
		again := r.workers.byID[id]
		if again == nil {
			bad("worker %d is not up in the view", id)
			continue
		}
		if known := s.view.Worker(id); known.Drains() && s.accepting(id) {
			bad("worker %d drains and accepts tasks", id)
		}
		for _, x := range w.held.list {
			if live := again.held.find(x.AttemptRef) != nil; live == x.stopped {
				bad("worker %d holds %v: stopped %v, live %v", id, x.AttemptRef, x.stopped, live)
			}
		}
		for _, a := range again.held.sorted() {
			known := w.held.find(a) != nil
			if _, orphaned := s.workers.leases.byRef[a]; !known && !orphaned {
				bad("worker %d: no worker holds live attempt %v", id, a)
			}
		}
	}
	if !maps.Equal(stopping, s.workers.stopping) {
		bad("stopped attempts by job: counted %v, are %v", s.workers.stopping, stopping)
	}
	for a, o := range s.workers.leases.byRef {
		if !o.keeps && !s.view.Live(fsm.HeldAttempt{AttemptRef: a, Worker: o.worker}) {
			bad("attempt %v has a lease and is not live", a)
		}
	}
	for a := range r.workers.leases.byRef {
		if _, ok := s.workers.leases.byRef[a]; !ok {
			bad("live attempt %v on a worker that is down has no lease", a)
		}
	}
	return errors.Join(errs...)
}

// accepting reports whether the scheduler may assign tasks to a worker.
func (s *Sequencer) accepting(id fsm.WorkerID) bool {
	return slices.ContainsFunc(s.dispatch.sched.View(scheduler.TaskRef{}, 0, scheduler.Normal, 0, nil).Workers(), func(f scheduler.WorkerFit) bool {
		return f.Worker == scheduler.WorkerID(id) && !slices.ContainsFunc(f.Obstacles, func(o scheduler.Obstacle) bool { return o.Kind == scheduler.NotAccepting })
	})
}

// differsCapacity releases all held attempts, checks that nothing else is
// taken, and takes them again. Reserve keeps limited classes from being
// recycled meanwhile.
func (s *Sequencer) differsCapacity() error {
	var errs []error
	for id, w := range s.workers.byID {
		classes := map[scheduler.ClassID]bool{0: true}
		priorities := []scheduler.Priority{scheduler.Low, scheduler.Normal, scheduler.High, scheduler.Urgent}
		for _, j := range s.dispatch.policies.jobs {
			for _, p := range j.list {
				classes[p.class] = true
			}
		}
		for _, x := range w.held.list {
			classes[x.class] = true
			s.dispatch.sched.Reserve(x.class)
			if !s.dispatch.sched.Release(scheduler.WorkerID(id), x.class, x.priority) {
				errs = append(errs, fmt.Errorf("worker %d: the slot of %v is free", id, x.AttemptRef))
			}
		}
		for c := range classes {
			for _, p := range priorities {
				if s.dispatch.sched.Release(scheduler.WorkerID(id), c, p) {
					errs = append(errs, fmt.Errorf("worker %d: a slot of class %d and priority %v is taken by no attempt", id, c, p))
				}
			}
		}
		for _, x := range w.held.list {
			s.dispatch.sched.Occupy(scheduler.WorkerID(id), x.class, x.priority)
			s.dispatch.sched.Unreserve(x.class)
		}
	}
	return errors.Join(errs...)
}

// differsQueues compares what the scheduler counts in each queue with the attempts that are
// held, and the settings with rebuilt ones.
func (s *Sequencer) differsQueues(r *Sequencer) error {
	var errs []error
	held := make(map[string]int)
	count := func(ref fsm.TaskRef) {
		if job, ok := s.view.Job(ref.Job); ok {
			held[schedulerQueue(fsm.QueueOf(job.Header))]++
		} else {
			held["?"]++
		}
	}
	for _, w := range s.workers.byID {
		for _, x := range w.held.list {
			count(x.TaskRef)
		}
	}
	for a := range s.workers.leases.byRef {
		count(a.TaskRef)
	}
	unknown := held["?"]
	for name, l := range s.dispatch.sched.Loads() {
		if name != "?" && (l.Running < held[name] || l.Running > held[name]+unknown) {
			errs = append(errs, fmt.Errorf("queue %q: the scheduler counts %d attempts, %d are held", name, l.Running, held[name]))
		}
	}
	if !maps.EqualFunc(s.dispatch.policies.required, r.dispatch.policies.required, slices.Equal) {
		errs = append(errs, fmt.Errorf("queues require %v, rebuilt %v", s.dispatch.policies.required, r.dispatch.policies.required))
	}
	if len(s.queues.buckets) != len(r.queues.buckets) {
		errs = append(errs, fmt.Errorf("%d queues have a rate, rebuilt %d", len(s.queues.buckets), len(r.queues.buckets)))
	}
	return errors.Join(errs...)
}

// differsLimits compares what the scheduler counts towards each limit with the attempts that
// are held, and the settings with those of the state. What an attempt of an archived job uses
// is unknown.
func (s *Sequencer) differsLimits() error {
	var errs []error
	held, unknown := make(map[string]uint32), uint32(0)
	s.workers.eachAttempt(func(t fsm.TaskRef) {
		p := s.view.Policy(t)
		if p == nil {
			unknown++
		}
		for _, use := range p.GetUses() {
			held[use]++
		}
	})
	loads := make(map[string]scheduler.LimitLoad)
	for _, l := range s.dispatch.sched.LimitLoads() {
		loads[l.Name] = l
		to := s.view.NamedLimit(fsm.LimitOf(l.Name)).GetSettings()
		if l.Running != to.Running || l.Rated != (to.Rate > 0) || l.Paused != (s.workers.settling.pending != nil) {
			errs = append(errs, fmt.Errorf("limit %q: the scheduler has %+v, the state %+v", l.Name, l, to))
		}
		if l.Held < held[l.Name] || l.Held > held[l.Name]+unknown {
			errs = append(errs, fmt.Errorf("limit %q: the scheduler counts %d attempts, %d are held", l.Name, l.Held, held[l.Name]))
		}
	}
	for use, k := range s.dispatch.policies.rates.byUse {
		timed := slices.ContainsFunc(s.timers.h, func(t timer) bool { return t.kind == timerTokens && uint64(t.task.Job) == k.id })
		if l, used := loads[use]; used && l.Tokens == 0 && !timed {
			errs = append(errs, fmt.Errorf("limit %q: nothing adds tokens", use))
		}
	}
	for use, n := range held {
		if _, known := loads[use]; !known {
			errs = append(errs, fmt.Errorf("limit %q: the scheduler does not know it, %d attempts are held", use, n))
		}
	}
	return errors.Join(errs...)
}

func (s *Sequencer) differsMemory(r *Sequencer) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.retention.tasks != r.retention.tasks || s.retention.endedTasks() != r.retention.endedTasks() || s.retention.endedJobs() != r.retention.endedJobs() {
		bad("%d tasks, %d of %d jobs ended; rebuilt %d, %d of %d", s.retention.tasks, s.retention.endedTasks(), s.retention.endedJobs(), r.retention.tasks, r.retention.endedTasks(), r.retention.endedJobs())
	}
	for id := range s.dispatch.policies.jobs {
		if job, ok := s.view.Job(id); !ok || job.State.Terminal() {
			bad("policies of ended job %d are kept", id)
		}
	}
	s.workers.running.mu.Lock()
	defer s.workers.running.mu.Unlock()
	for id, tasks := range s.workers.running.m {
		for i, o := range tasks {
			a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id, Index: i}, Attempt: o.Attempt}
			t, _ := s.view.Task(a.TaskRef)
			_, held := s.heldBy(t.Worker, a)
			if _, orphaned := s.workers.leases.byRef[a]; !held && !orphaned {
				bad("observed attempt %v is held by no worker", a)
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Sequencer) heldBy(id fsm.WorkerID, a fsm.AttemptRef) (held, bool) {
	w := s.workers.byID[id]
	if w == nil {
		return held{}, false
	}
	if x := w.held.find(a); x != nil {
		return *x, true
	}
	return held{}, false
}

// Waiting returns how many entries the scheduler holds, valid or not.
func (s *Sequencer) Waiting(ctx context.Context) int {
	n := -1
	q := &query{done: make(chan struct{}), f: func(*batch) error { n = s.dispatch.sched.Len(); return nil }}
	if !s.ask(ctx, q) {
		return -1
	}
	return n
}

// JobTimers returns how many timers each job has for its start, its expiry and its deadline.
func (s *Sequencer) JobTimers(ctx context.Context) map[fsm.JobID]int {
	n := make(map[fsm.JobID]int)
	q := &query{done: make(chan struct{}), f: func(*batch) error {
		for _, t := range s.timers.h {
			if t.kind == timerGate || t.kind == timerExpiry || t.kind == timerDeadline {
				n[t.task.Job]++
			}
		}
		return nil
	}}
	if !s.ask(ctx, q) {
		return nil
	}
	return n
}

// QueueTimeouts returns how many timers there are for queue timeouts, and how many ends are known.
func (s *Sequencer) QueueTimeouts(ctx context.Context) (timers, ends int) {
	q := &query{done: make(chan struct{}), f: func(*batch) error {
		for _, t := range s.timers.h {
			if t.kind == timerQueue {
				timers++
			}
		}
		ends = len(s.dispatch.queued.until)
		return nil
	}}
	if !s.ask(ctx, q) {
		return -1, -1
	}
	return timers, ends
}

// TickTimers returns how many timers there are for ticks of schedules.
func (s *Sequencer) TickTimers(ctx context.Context) int {
	return s.countTimers(ctx, func(t timer) bool { return t.kind == timerTick && t.task.Job != 0 })
}

// DueTimers returns how many timers there are for start times and retries of tasks.
func (s *Sequencer) DueTimers(ctx context.Context) int {
	return s.countTimers(ctx, func(t timer) bool { return t.kind == timerDue })
}

func (s *Sequencer) countTimers(ctx context.Context, counts func(timer) bool) int {
	n := -1
	q := &query{done: make(chan struct{}), f: func(*batch) error {
		n = 0
		for _, t := range s.timers.h {
			if counts(t) {
				n++
			}
		}
		return nil
	}}
	if !s.ask(ctx, q) {
		return -1
	}
	return n
}

// Stats returns the counters of the process.
func (s *Sequencer) Stats() Stats { return s.cfg.Totals.Stats() }

// nowhere is a log that drops all entries.
type nowhere struct{}

func (nowhere) Propose([]byte) Proposal { return nil }

func testConfig() Config {
	return Config{
		ServerID: "n1", Instance: "i1", Term: 1, Log: nowhere{}, Machine: fsm.NewMachine(),
		Logger: slog.New(slog.DiscardHandler), NewClusterID: func() string { return "c" }, InboxReports: 16, InboxOthers: 16,
	}
}

// testSequencer returns a sequencer that does not run.
func testSequencer(t *testing.T) *Sequencer {
	t.Helper()
	s, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// GateTimers returns how many timers there are for the start times and expiries of jobs, and
// how many tasks are ready.
func (s *Sequencer) GateTimers(ctx context.Context) (timers, ready int) {
	q := &query{done: make(chan struct{}), f: func(*batch) error {
		for _, t := range s.timers.h {
			if t.kind == timerGate || t.kind == timerExpiry {
				timers++
			}
		}
		ready = s.dispatch.sched.Len()
		return nil
	}}
	if !s.ask(ctx, q) {
		return -1, -1
	}
	return timers, ready
}
