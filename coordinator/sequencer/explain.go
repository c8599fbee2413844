package sequencer

import (
	"context"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Explanation is what the leader knows, beyond the replicated state, about why a task is
// in its state. Of a task that is not in the state, it is empty.
type Explanation struct {
	State   fsm.TaskState // with all entries in flight
	Attempt uint32        // its last
	Index   uint64        // log index up to which the leader had applied everything
	NowMS   int64         // Unix ms; the time of that

	// Paused: the leader assigns nothing, because replicas disagree or by order of its
	// coordinator. Busy: more tasks are ready than one log entry takes.
	Paused, Busy bool

	// Of a pending task.
	HeldUntil    int64 // Unix ms; a cleanup task waits for cancelled attempts until then; 0 = it does not
	QueueTimeout int64 // Unix ms; 0 = none
	// RateUntil has the limits whose rate lets no task start now, by use: until when, Unix ms.
	RateUntil map[string]int64
	// EndsOn is the worker that is kept for the task because Ends attempts there are being stopped
	// for it; 0 = none.
	EndsOn fsm.WorkerID
	Ends   int
	// Capacity returns what decides whether the task gets a free slot, or would if it were
	// ready: of a task that is not assigned, nil otherwise. It knows only workers that the
	// caller may see. It takes some milliseconds with thousands of workers.
	Capacity func(sees func(fsm.WorkerID) bool) *Capacity

	// Estimate returns when a pending task starts; nil for others. It is called after
	// Capacity, and takes some milliseconds. runTimes returns the latest run times of the
	// tasks that are like one, the same list for all of them.
	Estimate func(runTimes func(fsm.TaskRef) []time.Duration) StartEstimate

	// Of an assigned task.
	Attached    bool  // its worker has a session
	MarkedDown  int64 // without a session: Unix ms at which the worker is marked down; 0 = it is
	LeaseUntil  int64 // Unix ms; when an at-most-once attempt on a worker that is down ends as lost; 0 = never
	Before      int   // attempts at the worker that get a slot before it
	Unconfirmed bool  // its worker has not yet reported to this leader that it has the attempt
	Stopped     bool  // it is being stopped
	// PreemptedBy is the job of the urgent task for which it is being stopped; 0 = none.
	PreemptedBy fsm.JobID
	// Spilled is the worker that its affinity chooses, if that is another one.
	Spilled Affinity
}

// A question is an Explanation that a caller waits for.
type question struct {
	s      *Sequencer
	task   fsm.TaskRef
	gone   <-chan struct{}             // closed when the caller has left
	answer chan answered[*Explanation] // of size 1: the caller may have left

	view scheduler.TaskViews
	// keyUntil is Affinity.Until of the view.
	keyUntil int64
	down     map[scheduler.WorkerID]refusal
}

// refusal is why a worker accepts no tasks.
type refusal struct{ drains, detached, leaving bool }

// Explain returns why a task is in its state, as far as the leader knows more than the
// state. It waits for the commit of everything that the answer takes into account. What
// takes long is done by Explanation.Capacity, on a copy. Errors: *BusyError, ErrTermEnded,
// ErrOutcomeUnknown, and that of ctx.
func (s *Sequencer) Explain(ctx context.Context, t fsm.TaskRef) (*Explanation, error) {
	q := &question{s: s, task: t, gone: ctx.Done(), answer: make(chan answered[*Explanation], 1)}
	if err := s.inbox.put(classWorker, q); err != nil {
		return nil, err
	}
	select {
	case r := <-q.answer:
		if r.err != nil {
			return nil, r.err
		}
		if q.view != nil {
			r.value.Capacity = func(sees func(fsm.WorkerID) bool) *Capacity {
				c := newCapacity(q.view, q.down, sees)
				c.Affinity.Until = q.keyUntil
				return c
			}
			if r.value.State == fsm.Pending {
				r.value.Estimate = q.estimate
			}
		}
		return r.value, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// run defers the question to the end of the cycle: before, slots may be free that the
// cycle is about to assign.
func (q *question) run(*batch) bool {
	select {
	case <-q.gone:
		return true
	default:
	}
	q.s.questions = append(q.s.questions, q)
	return true
}

func (q *question) refuse(err error) { q.answer <- answered[*Explanation]{err: err} }

// answerQuestions answers the questions of a cycle after its commit. Each takes part of a
// millisecond with thousands of workers: those beyond maxAnswered wait for the next cycle,
// so that what that assigns does not wait for them.
func (s *Sequencer) answerQuestions(b *batch) {
	n := min(len(s.questions), maxAnswered)
	for _, q := range s.questions[:n] {
		e := s.explain(b, q)
		b.then(func(index uint64, err error) {
			e.Index = index
			q.answer <- answered[*Explanation]{value: e, err: err}
		})
	}
	s.questions = slices.Delete(s.questions, 0, n)
}

// maxAnswered is how many questions one cycle answers.
const maxAnswered = 1

func (s *Sequencer) explain(b *batch, q *question) *Explanation {
	e := &Explanation{Paused: s.paused.Load(), Busy: b.full()}
	t, ok := b.view.Task(q.task)
	if !ok {
		return e
	}
	e.State, e.Attempt, e.NowMS = t.State, t.Attempt, b.unixMS(b.now)
	if t.State == fsm.Assigned {
		s.explainAssigned(b, q.task, &t, e)
		return e
	}
	if t.State == fsm.Pending {
		e.HeldUntil = b.unixMS(s.dispatch.cleanups.until[q.task])
		e.QueueTimeout = b.unixMS(s.dispatch.queued.until[q.task])
		e.RateUntil = s.rateUntil(b, q.task, &t)
		e.EndsOn, e.Ends = s.preempt.endsFor(q.task)
	}
	if s.viewCapacity(b, q, &t); t.State == fsm.Pending {
		s.viewRunning(b, q)
	}
	return e
}

// rateUntil returns until when the rates of limits keep a task from starting.
func (s *Sequencer) rateUntil(b *batch, ref fsm.TaskRef, t *fsm.Task) map[string]int64 {
	p := s.dispatch.policies
	until := make(map[string]int64)
	for _, use := range p.numbered(b.view, ref.Job, t.Policy).demand.Uses {
		if wait := p.rates.wait(use, b.now); wait > 0 {
			until[use] = b.unixMS(b.now.Add(wait))
		}
	}
	return until
}

// unixMS returns the wall clock's time at a monotonic time; 0 for the zero time.
func (b *batch) unixMS(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return b.wall.Add(at.Sub(b.now)).UnixMilli()
}

// viewCapacity copies what decides whether the task can start, or could if it were ready.
func (s *Sequencer) viewCapacity(b *batch, q *question, t *fsm.Task) {
	policies := s.dispatch.policies
	p := policies.numbered(b.view, q.task.Job, t.Policy)
	avoid := scheduler.WorkerID(0)
	if t.Attempt > 0 {
		avoid = scheduler.WorkerID(t.Worker)
	}
	q.view = s.dispatch.sched.Views(schedulerRef(q.task), policies.classOf(b.view, q.task, p), p.priority, avoid, isReady(b.view))
	q.view.SetTokens(func(use string) uint32 { return policies.rates.tokens(use, b.now) })
	if ends := q.view.KeyWaitEnds(); ends > 0 {
		q.keyUntil = b.wall.UnixMilli() + max(ends-b.at.milliseconds(), 0)
	}
	for _, id := range q.view[0].NotAccepting() {
		w, known := s.workers.byID[fsm.WorkerID(id)], b.view.Worker(fsm.WorkerID(id))
		if w == nil {
			continue
		}
		if q.down == nil {
			q.down = make(map[scheduler.WorkerID]refusal)
		}
		q.down[id] = refusal{drains: known != nil && known.Drains(), detached: w.session == nil, leaving: w.leaving}
	}
}

func (s *Sequencer) explainAssigned(b *batch, ref fsm.TaskRef, t *fsm.Task, e *Explanation) {
	a := fsm.AttemptRef{TaskRef: ref, Attempt: t.Attempt}
	if l, ok := s.workers.leases.byRef[a]; ok {
		e.LeaseUntil = b.unixMS(l.until)
	}
	w := s.workers.byID[t.Worker]
	if w == nil {
		return
	}
	if e.Attached = w.session != nil; !e.Attached {
		e.MarkedDown = b.unixMS(w.deadline)
	}
	x := w.held.find(a)
	if x == nil {
		return
	}
	e.Stopped, e.Unconfirmed, e.PreemptedBy = x.stopped, x.unconfirmed, w.held.endings[a].by
	if k := showAffinity(s.dispatch.sched.KeyWorker(x.class)); k.Worker != t.Worker {
		e.Spilled = k
	}
	before := 0
	for i := range w.held.list {
		if y := &w.held.list[i]; y.AttemptRef != a && y.startsBefore(x) {
			before++
		}
	}
	if slots := b.view.Worker(t.Worker); slots != nil && x.started == 0 {
		e.Before = max(before+1-int(slots.Slots), 0)
	}
}

// startsBefore reports whether a worker starts an attempt, or has started it, before
// another one.
func (x *held) startsBefore(y *held) bool {
	switch {
	case x.started != 0 || y.started != 0:
		return x.started != 0
	case x.priority != y.priority:
		return x.priority > y.priority
	}
	return x.number < y.number
}
