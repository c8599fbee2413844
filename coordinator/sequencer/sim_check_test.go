package sequencer_test

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simRetry is the retry after a failed attempt.
type simRetry struct {
	decided time.Time // in virtual time
	delay   time.Duration
}

// simLedger records what was committed and what workers really executed. The
// checks use it.
type simLedger struct {
	c         *sim
	proposals uint64

	attempts  map[fsm.TaskRef]uint32 // highest attempt number
	given     map[fsm.AttemptRef]fsm.WorkerID
	completed map[fsm.TaskRef]uint32 // by which attempt
	ended     map[fsm.TaskRef]fsm.TaskState
	forgotten map[fsm.JobID]bool
	revives   map[fsm.JobID]int
	purges    map[fsm.JobID]bool
	changes   int             // keys of changes so far
	keyed     map[string]bool // changes that took effect, by key

	executed map[fsm.AttemptRef]bool       // true: it succeeded
	running  map[fsm.AttemptRef]*simWorker // now
	begun    map[fsm.TaskRef]int           // of at-most-once tasks
	drained  map[*simWorker]simDrain
	floor    map[fsm.TaskRef]uint32 // attempts up to it are from before a retry of the job
	retries  map[fsm.AttemptRef]simRetry

	preemptions map[fsm.TaskRef]int

	gap          bool                 // an entry may have been committed without one before it of the same term
	notCancelled map[string]fsm.JobID // reasons of requests that all leaders answered as not done

	proposed map[*byte]*simProposal // by the first byte of the entry

	notified simNotifications
}

// simDrain is when a term learned that a worker drains.
type simDrain struct {
	term  *simTerm
	order uint64 // of the last proposal before it
}

func newSimLedger(c *sim) simLedger {
	return simLedger{
		c: c, attempts: map[fsm.TaskRef]uint32{}, given: map[fsm.AttemptRef]fsm.WorkerID{}, completed: map[fsm.TaskRef]uint32{},
		ended: map[fsm.TaskRef]fsm.TaskState{}, forgotten: map[fsm.JobID]bool{}, revives: map[fsm.JobID]int{}, purges: map[fsm.JobID]bool{}, keyed: map[string]bool{},
		executed: map[fsm.AttemptRef]bool{}, running: map[fsm.AttemptRef]*simWorker{}, begun: map[fsm.TaskRef]int{}, floor: map[fsm.TaskRef]uint32{},
		retries: map[fsm.AttemptRef]simRetry{}, preemptions: map[fsm.TaskRef]int{},
		drained: map[*simWorker]simDrain{}, notCancelled: map[string]fsm.JobID{}, notified: simNotifications{received: map[uint64]bool{}},
		proposed: map[*byte]*simProposal{},
	}
}

// wasProposed records a proposal, also of an entry that is committed only by a later leader.
func (l *simLedger) wasProposed(p *simProposal) { l.proposed[&p.data[0]] = p }

// before checks an entry before it is applied; the returned function checks
// after. An entry with an unknown outcome that a later leader commits is
// rejected as a whole if an entry that it depends on is missing. No other entry
// is rejected.
func (l *simLedger) before(e fsm.Entry, late bool, order uint64, data []byte) func(fsm.Applied) {
	var done []fsm.CompleteItem
	var given []fsm.AssignItem
	var revived, purged []fsm.JobID
	var whole bool
	var limits map[string]fsm.LimitSettings
	checkNotifications := func(*fsm.State) {}
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if whole = e.After == s.Entries(); !whole {
			return
		}
		checkNotifications = l.notificationsBefore(s, e)
		limits = l.c.limits.limitsBefore(s)
		began := l.proposed[&data[0]].began
		l.c.clocks.nothingExpires(s, e, began)
		for _, op := range e.Ops {
			switch op := op.(type) {
			case *fsm.Complete:
				for _, it := range op.Items {
					if t, ok := s.Task(it.TaskRef); ok && t.State != fsm.Completed {
						done = append(done, it)
					}
				}
			case *fsm.Assign:
				given = append(given, op.Items...)
			case *fsm.AssignAlternative:
				for _, it := range op.Items {
					given = append(given, fsm.AssignItem(it.HeldAttempt))
				}
			case *fsm.Fail:
				l.beforeFail(s, e, op, began)
			case *fsm.Due:
				l.beforeDue(s, e, op)
			case *fsm.FailTask:
				if s.Policy(op.Task).GetQueueTimeoutRequeues() {
					l.c.fail("task %v failed because of %q", op.Task, op.Error)
				}
			case *fsm.Lose:
				l.beforeLose(s, op)
			case *fsm.Fire:
				l.beforeFire(s, e, op, began)
			case *fsm.OpenGate:
				l.beforeOpen(s, e, op, began)
			case *fsm.ExpireJob:
				l.beforeExpiry(s, e, op, began)
			case *fsm.Revive:
				revived = append(revived, op.Job)
				l.once(op.Key)
			case *fsm.Purge:
				purged = append(purged, op.Job)
				l.once(op.Key)
			case *fsm.Archive:
				for _, id := range op.Items {
					l.forgotten[id] = true
				}
			}
		}
	})
	return func(applied fsm.Applied) {
		switch {
		case whole && applied.Rejected == fsm.Accepted:
		case late && l.gap && !whole && applied.Rejected == fsm.OutOfOrder:
		default:
			l.c.fail("entry %d, based on %d others: %v", applied.Index, e.After, applied.Rejected)
		}
		l.resumed(revived, purged)
		l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
			checkNotifications(s)
			l.completions(s, done)
			l.assignments(s, given, order)
			l.limited(s, given, limits, data)
			l.checkQueues(s, given)
			if l.c.chance(2) {
				l.scan(s)
			}
		})
	}
}

// once checks that a change takes effect once.
func (l *simLedger) once(key string) {
	if key != "" && l.keyed[key] {
		l.c.fail("%s took effect twice", key)
	}
	l.keyed[key] = true
}

// resumed resets what was final in jobs that are retried.
func (l *simLedger) resumed(revived, purged []fsm.JobID) {
	for _, id := range revived {
		l.revives[id]++
		l.forget(id)
	}
	for _, id := range purged {
		l.forget(id)
	}
}

func (l *simLedger) forget(id fsm.JobID) {
	for _, j := range l.c.jobs {
		if j.id == id || !j.acked {
			for i := range j.sub.Total {
				ref := fsm.TaskRef{Job: id, Index: i}
				delete(l.ended, ref)
				delete(l.begun, ref)
				l.floor[ref] = l.attempts[ref]
				if i >= j.sub.Total-j.finals {
					delete(l.completed, ref) // cleanup must run again
				}
			}
		}
	}
}

// completions checks that a task completes once, by an attempt that was
// executed.
func (l *simLedger) completions(s *fsm.State, done []fsm.CompleteItem) {
	for _, it := range done {
		v, ok := s.Task(it.TaskRef)
		if !ok || v.State != fsm.Completed {
			continue
		}
		if by, twice := l.completed[it.TaskRef]; twice {
			l.c.fail("task %v completed by attempt %d and by attempt %d", it.TaskRef, by, it.Attempt)
		}
		l.completed[it.TaskRef] = it.Attempt
		if !l.executed[it.AttemptRef] || l.given[it.AttemptRef] != it.Worker {
			l.c.fail("%v completed but worker %d did not execute it", it.AttemptRef, it.Worker)
		}
	}
}

// assignments checks that attempt numbers only grow, and that no task starts
// too early or on a draining worker.
func (l *simLedger) assignments(s *fsm.State, given []fsm.AssignItem, order uint64) {
	for _, it := range given {
		v, ok := s.Task(it.TaskRef)
		if !ok || v.Attempt != it.Attempt || v.Worker != it.Worker {
			continue // rejected
		}
		if it.Attempt <= l.attempts[it.TaskRef] {
			l.c.fail("attempt %v follows attempt %d", it.AttemptRef, l.attempts[it.TaskRef])
		}
		l.attempts[it.TaskRef] = it.Attempt
		l.given[it.AttemptRef] = it.Worker
		job, _ := s.Job(it.Job)
		if v.Cleanup && job.Outcome == 0 {
			l.c.fail("cleanup task %v was assigned before the ordinary tasks ended", it.AttemptRef)
		}
		if slices.Contains(job.NeedEnds, 0) && !v.Cleanup {
			l.c.fail("%v was assigned before the jobs that its job needs ended as %v", it.AttemptRef, job.NeedEnds)
		}
		if job.Gated {
			l.c.fail("%v was assigned behind a closed gate", it.AttemptRef)
		}
		l.placed(s, it)
		l.dependencies(s, it)
		l.maxParallel(s, it)
		for w, d := range l.drained {
			if w.id == it.Worker && !w.shared() && order > d.order && d.term == l.c.leader {
				l.c.fail("%v was assigned to draining worker %s", it.AttemptRef, w.name)
			}
		}
	}
}

// limited checks the limits of tasks that were assigned.
func (l *simLedger) limited(s *fsm.State, given []fsm.AssignItem, before map[string]fsm.LimitSettings, data []byte) {
	for _, it := range given {
		if v, ok := s.Task(it.TaskRef); ok && v.Attempt == it.Attempt && v.Worker == it.Worker {
			l.c.limits.wasAssigned(s, it, before, data)
		}
	}
}

// dependencies checks that what a task depends on has ended as it must.
func (l *simLedger) dependencies(s *fsm.State, it fsm.AssignItem) {
	job, _ := s.Job(it.Job)
	conditions := s.Conditions(it.TaskRef)
	for k, d := range s.Dependencies(it.TaskRef) {
		completes := len(conditions) == 0 || conditions[k] == fsm.WhenCompleted
		for n := range s.Span(fsm.TaskRef{Job: it.Job, Index: d}) {
			v, _ := s.Task(fsm.TaskRef{Job: it.Job, Index: d + n})
			if completes && v.State != fsm.Completed || !completes && !v.State.Terminal() && job.RevivedMS == 0 {
				l.c.fail("%v was assigned while task %d is %v", it.AttemptRef, d+n, v.State)
			}
		}
	}
}

// maxParallel checks the limit of an array.
func (l *simLedger) maxParallel(s *fsm.State, it fsm.AssignItem) {
	a, ok := s.ArrayTask(it.TaskRef)
	if !ok || a.MaxParallel == 0 {
		return
	}
	live := uint32(0)
	for i := a.First; i < a.First+a.Count; i++ {
		if s.AttemptState(fsm.TaskRef{Job: it.Job, Index: i}).State == fsm.Assigned {
			live++
		}
	}
	if live > a.MaxParallel {
		l.c.fail("%v makes %d concurrent attempts of array %s, limit %d", it.AttemptRef, live, a.Name, a.MaxParallel)
	}
}

// beforeFail checks that retries are bounded and have a delay.
func (l *simLedger) beforeFail(s *fsm.State, e fsm.Entry, op *fsm.Fail, began time.Time) {
	for _, it := range op.Items {
		p := s.Policy(it.TaskRef)
		t, ok := s.Task(it.TaskRef)
		if !ok || it.Next != fsm.NextRetry {
			continue
		}
		l.retries[it.AttemptRef] = simRetry{began, time.Duration(it.Due-e.NowMS) * time.Millisecond}
		if it.Error == "preempted: an urgent task took its place" {
			l.preempted(p, it)
		}
		if !it.CountsAsRetry {
			continue
		}
		if t.Failures+1 > p.GetRetry().GetMax() {
			l.c.fail("%v is retried after %d failures, limit %d", it.AttemptRef, t.Failures+1, p.GetRetry().GetMax())
		}
		if wait := it.Due - e.NowMS; wait < 0 || wait > p.GetRetry().GetMaxDelayMs() || !p.GetRetry().GetJitter() && wait < min(p.GetRetry().GetInitialMs(), p.GetRetry().GetMaxDelayMs()) {
			l.c.fail("%v has a retry delay of %d ms: %v", it.AttemptRef, wait, p.GetRetry())
		}
	}
}

// preempted checks that a task may be preempted again. A cleanup task has the same policy, apart
// from that.
func (l *simLedger) preempted(p *dtaskv1.TaskPolicy, it fsm.FailItem) {
	l.preemptions[it.TaskRef]++
	switch n := l.preemptions[it.TaskRef]; {
	case !p.GetPreemptible() || p.GetFinally() || p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE:
		l.c.fail("%v is preempted: %v", it.AttemptRef, p)
	case it.CountsAsRetry:
		l.c.fail("%v is preempted, which counts as a retry", it.AttemptRef)
	case n > 3:
		l.c.fail("%v is preempted %d times", it.TaskRef, n)
	}
}

// beforeDue checks that no task is due early by the clock of the leader. Only a retry
// whose delay has passed may be: a leader with a clock that was ahead decided it. Where clocks
// are set, a retry may come early, and a start time whose timer was set before: see G18.
func (l *simLedger) beforeDue(s *fsm.State, e fsm.Entry, op *fsm.Due) {
	for _, a := range op.Items {
		t, ok := s.Task(a.TaskRef)
		if !ok || t.State != fsm.Scheduled || t.Attempt != a.Attempt || t.DueMS <= e.NowMS+1 {
			continue
		}
		if l.c.clocks != nil {
			continue
		}
		if r, ok := l.retries[a]; !ok || time.Since(r.decided) < r.delay-time.Millisecond { // entries count in milliseconds
			l.c.fail("%v is due at %d and became ready at %d, %v after its failure: %+v", a, t.DueMS, e.NowMS, time.Since(r.decided), r)
		}
	}
}

// beforeLose checks that an at-most-once attempt is lost only after its worker
// has stopped it, or must have.
func (l *simLedger) beforeLose(s *fsm.State, op *fsm.Lose) {
	for _, it := range op.Items {
		w := l.running[it.AttemptRef]
		if w == nil || !s.Live(it) || w.wasPaused() {
			continue
		}
		if x := w.held[it.AttemptRef]; x == nil || !x.deaf {
			l.c.fail("%v is lost while it runs on worker %s", it.AttemptRef, w.name)
		}
	}
}

// scan checks all tasks: ended tasks don't change, and no worker has more
// attempts than its slots and its prefetch limit.
func (l *simLedger) scan(s *fsm.State) {
	if err := s.Check(); err != nil {
		l.c.fail("%v", err)
	}
	l.checkRuns(s)
	live := map[fsm.WorkerID]uint32{}
	for job := range s.Jobs(0) {
		if id, ok := l.notCancelled[job.Error]; ok && id == job.ID && job.State == fsm.JobCancelled {
			l.c.fail("job %d was cancelled by a request that all leaders answered as not done", id)
		}
		for i := range job.Total {
			ref := fsm.TaskRef{Job: job.ID, Index: i}
			v, _ := s.Task(ref)
			if v.State == fsm.Assigned && !v.StartLogged { // a started one may wait for the lease of an earlier process
				live[v.Worker]++
			}
			if was, ok := l.ended[ref]; ok && was != v.State {
				l.c.fail("task %v had ended as %v and is now %v", ref, was, v.State)
			}
			if _, ok := l.completed[ref]; ok && v.State != fsm.Completed {
				l.c.fail("task %v had completed and is now %v", ref, v.State)
			}
			if v.State.Terminal() {
				l.ended[ref] = v.State
			}
		}
	}
	for id, n := range live {
		if w := s.Worker(id); w == nil || n > simPriorities*(w.Slots+simPrefetch)+l.c.surplus {
			l.c.fail("worker %d holds %d attempts: %+v", id, n, w)
		}
	}
	for _, j := range l.c.jobs {
		if _, ok := s.Job(j.id); j.acked && !ok && !l.forgotten[j.id] {
			l.c.fail("acknowledged job %d is lost", j.id)
		}
	}
}

// wasCommitted checks that an assignment that reaches a worker is in the log.
func (l *simLedger) wasCommitted(it fsm.AssignItem) {
	if w, ok := l.given[it.AttemptRef]; !ok || w != it.Worker {
		l.c.fail("worker %d got assignment %v, which was not committed", it.Worker, it.AttemptRef)
	}
}

// executionStarts records that a worker starts to execute an attempt.
func (l *simLedger) executionStarts(a fsm.AttemptRef, atMostOnce bool, w *simWorker) {
	l.c.note("begin", uint64(a.Job)<<32|uint64(a.Index), uint64(a.Attempt))
	if _, twice := l.executed[a]; twice {
		l.c.fail("%v is executed twice", a)
	}
	l.executed[a], l.running[a] = false, w
	l.c.limits.executionStarts(a)
	if !atMostOnce || a.Attempt <= l.floor[a.TaskRef] {
		return
	}
	l.begun[a.TaskRef]++
	if l.begun[a.TaskRef] > 1 {
		l.c.fail("at-most-once task %v started twice", a)
	}
}

func (l *simLedger) executionEnds(a fsm.AttemptRef, success bool) {
	if l.running[a] == nil {
		return // it had not started
	}
	l.c.note("end", uint64(a.Job)<<32|uint64(a.Index), uint64(a.Attempt))
	delete(l.running, a)
	l.c.limits.executionEnds(a)
	l.executed[a] = success
}

// drainNoted records that a term has learned of a drain, or, if nil, of its
// end.
func (w *simWorker) drainNoted(t *simTerm) {
	if t == nil {
		delete(w.c.drained, w)
		return
	}
	x, leaving := w.session, false
	w.c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
		leaving = s.Leaving(ctx, w.id)
		return nil
	}, func(error) {
		if leaving && !t.over && x != nil && w.session == x {
			w.c.drained[w] = simDrain{term: t, order: w.c.proposals}
		}
	})
}

// accepted checks a completion whose acceptance reached the worker. A cleanup
// task runs again if its job was retried meanwhile.
func (l *simLedger) accepted(a fsm.AttemptRef, w fsm.WorkerID) {
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if v, ok := s.Task(a.TaskRef); ok && v.Cleanup && l.revives[a.Job] > 0 {
			return
		}
		if v, ok := s.Task(a.TaskRef); ok && (v.State != fsm.Completed || v.Attempt != a.Attempt || v.Worker != w) {
			l.c.fail("completion of %v was acknowledged as accepted, but the task is %+v", a, v)
		}
	})
}

// saved checks a checkpoint whose acknowledgment reached the worker: until the
// task ends, its next attempt starts with it or a later one.
func (l *simLedger) saved(a fsm.AttemptRef, number uint32) {
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		v, ok := s.Task(a.TaskRef)
		if !ok || v.State.Terminal() || a.Attempt <= l.floor[a.TaskRef] {
			return
		}
		c, ok := s.Checkpoint(a.TaskRef)
		if !ok || c.Attempt < a.Attempt || c.Attempt == a.Attempt && c.Number < number {
			l.c.fail("checkpoint %d of %v was acknowledged, but the state has %+v", number, a, c)
		}
	})
}

func (l *simLedger) jobEnded(id fsm.JobID) bool {
	ended := false
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		job, ok := s.Job(id)
		ended = ok && job.State.Terminal() || l.forgotten[id]
	})
	return ended
}

// finalChecks checks that all replicas have the same state, byte by byte.
func (c *sim) finalChecks() {
	c.log.truth.Read(func(s *fsm.State, _ uint64) { c.scan(s) })
	var want []byte
	for i, r := range c.log.replicas {
		r.catchUp()
		got := r.persist()
		if i == 0 {
			want = got
		} else if !bytes.Equal(got, want) {
			c.fail("replicas 0 and %d differ at index %d", r.number, r.applied)
		}
	}
	c.allDelivered()
	if n := len(c.simLedger.running); n > 0 {
		c.fail("%d executions of attempts that no worker holds", n)
	}
}
