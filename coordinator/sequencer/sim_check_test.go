package sequencer_test

import (
	"bytes"
	"time"

	"github.com/dtask/dtask/fsm"
)

// simLedger is what the simulation has seen, to judge by: what was committed,
// and what workers really executed.
type simLedger struct {
	c         *sim
	proposals uint64

	attempts  map[fsm.TaskRef]uint32 // highest number given
	given     map[fsm.AttemptRef]fsm.WorkerID
	completed map[fsm.TaskRef]uint32 // by which attempt
	ended     map[fsm.TaskRef]fsm.TaskState
	forgotten map[fsm.JobID]bool
	revives   map[fsm.JobID]int
	purges    map[fsm.JobID]bool

	executed map[fsm.AttemptRef]bool       // true: to its end, with success
	running  map[fsm.AttemptRef]*simWorker // at this moment
	begun    map[fsm.TaskRef]int           // of at-most-once tasks
	drained  map[*simWorker]simDrain
	floor    map[fsm.TaskRef]uint32 // attempts up to it are from before a person let the job go on

	gap          bool                 // an entry may have been committed and one before it, of the same term, not
	notCancelled map[string]fsm.JobID // reasons of which all said that nothing was done

	told told
}

// simDrain is when a term heard that a worker takes nothing more.
type simDrain struct {
	term  *simTerm
	order uint64 // of the last proposal before that
}

func newSimLedger(c *sim) simLedger {
	return simLedger{
		c: c, attempts: map[fsm.TaskRef]uint32{}, given: map[fsm.AttemptRef]fsm.WorkerID{}, completed: map[fsm.TaskRef]uint32{},
		ended: map[fsm.TaskRef]fsm.TaskState{}, forgotten: map[fsm.JobID]bool{}, revives: map[fsm.JobID]int{}, purges: map[fsm.JobID]bool{},
		executed: map[fsm.AttemptRef]bool{}, running: map[fsm.AttemptRef]*simWorker{}, begun: map[fsm.TaskRef]int{}, floor: map[fsm.TaskRef]uint32{},
		drained: map[*simWorker]simDrain{}, notCancelled: map[string]fsm.JobID{}, told: told{received: map[uint64]bool{}},
	}
}

// before looks at an entry before it is applied, and what it gives looks after.
// An entry of unknown fate that a later leader commits is refused as a whole if one that
// it was made on is missing; others never are.
func (l *simLedger) before(e fsm.Entry, late bool, order uint64) func(fsm.Applied) {
	var done []fsm.CompleteItem
	var given []fsm.AssignItem
	var revived, purged []fsm.JobID
	var whole bool
	notices := func(*fsm.State) {}
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if whole = e.After == s.Entries(); !whole {
			return
		}
		notices = l.noticesBefore(s, e)
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
			case *fsm.Fail:
				l.beforeFail(s, e, op)
			case *fsm.Due:
				l.beforeDue(s, e, op)
			case *fsm.Lose:
				l.beforeLose(s, op)
			case *fsm.Revive:
				revived = append(revived, op.Job)
			case *fsm.Purge:
				purged = append(purged, op.Job)
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
			l.c.fail("entry %d, made after %d others: %v", applied.Index, e.After, applied.Rejected)
		}
		l.goesOn(revived, purged)
		l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
			notices(s)
			l.completions(s, done)
			l.assignments(s, given, order)
			if l.c.chance(2) {
				l.scan(s)
			}
		})
	}
}

// goesOn forgets what was final of jobs that a person lets go on.
func (l *simLedger) goesOn(revived, purged []fsm.JobID) {
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
					delete(l.completed, ref) // what was cleaned up will have to be again
				}
			}
		}
	}
}

// completions: a task completes once, by an attempt that really ran to its end.
func (l *simLedger) completions(s *fsm.State, done []fsm.CompleteItem) {
	for _, it := range done {
		v, ok := s.Task(it.TaskRef)
		if !ok || v.State != fsm.Completed {
			continue
		}
		if by, twice := l.completed[it.TaskRef]; twice {
			l.c.fail("task %v was completed by attempt %d and by attempt %d", it.TaskRef, by, it.Attempt)
		}
		l.completed[it.TaskRef] = it.Attempt
		if !l.executed[it.AttemptRef] || l.given[it.AttemptRef] != it.Worker {
			l.c.fail("%v completed, and worker %d did not execute it", it.AttemptRef, it.Worker)
		}
	}
}

// assignments: numbers only grow, and nothing starts too early or where it must
// not.
func (l *simLedger) assignments(s *fsm.State, given []fsm.AssignItem, order uint64) {
	for _, it := range given {
		v, ok := s.Task(it.TaskRef)
		if !ok || v.Attempt != it.Attempt || v.Worker != it.Worker {
			continue // refused
		}
		if it.Attempt <= l.attempts[it.TaskRef] {
			l.c.fail("attempt %v comes after attempt %d", it.AttemptRef, l.attempts[it.TaskRef])
		}
		l.attempts[it.TaskRef] = it.Attempt
		l.given[it.AttemptRef] = it.Worker
		if job, _ := s.Job(it.Job); v.Cleanup && job.Outcome == 0 {
			l.c.fail("clean-up task %v was given away before the others had ended", it.AttemptRef)
		}
		for _, d := range s.Dependencies(it.TaskRef) {
			for n := range s.Span(fsm.TaskRef{Job: it.Job, Index: d}) {
				if v, _ := s.Task(fsm.TaskRef{Job: it.Job, Index: d + n}); v.State != fsm.Completed {
					l.c.fail("%v was given away while task %d is %v", it.AttemptRef, d+n, v.State)
				}
			}
		}
		l.atOnce(s, it)
		for w, d := range l.drained {
			if w.id == it.Worker && !w.twins() && order > d.order && d.term == l.c.leader {
				l.c.fail("%v was given to worker %s, which drains", it.AttemptRef, w.name)
			}
		}
	}
}

// atOnce: no more tasks of an array have an attempt than it allows.
func (l *simLedger) atOnce(s *fsm.State, it fsm.AssignItem) {
	a, ok := s.ArrayTask(it.TaskRef)
	if !ok || a.MaxParallel == 0 {
		return
	}
	live := uint32(0)
	for i := a.First; i < a.First+a.Count; i++ {
		if _, state := s.AttemptState(fsm.TaskRef{Job: it.Job, Index: i}); state == fsm.Assigned {
			live++
		}
	}
	if live > a.MaxParallel {
		l.c.fail("%v makes %d attempts at once of the array %s, which allows %d", it.AttemptRef, live, a.Name, a.MaxParallel)
	}
}

// beforeFail: retries are bounded, and wait.
func (l *simLedger) beforeFail(s *fsm.State, e fsm.Entry, op *fsm.Fail) {
	for _, it := range op.Items {
		p := s.Policy(it.TaskRef)
		t, ok := s.Task(it.TaskRef)
		if !ok || it.Next != fsm.NextRetry || !it.CountsAsRetry {
			continue
		}
		if t.Failures+1 > p.GetRetry().GetMax() {
			l.c.fail("%v is to be tried again after %d failures, at most %d are", it.AttemptRef, t.Failures+1, p.GetRetry().GetMax())
		}
		if wait := it.Due - e.NowMS; wait < 0 || wait > p.GetRetry().GetMaxDelayMs() || !p.GetRetry().GetJitter() && wait < min(p.GetRetry().GetInitialMs(), p.GetRetry().GetMaxDelayMs()) {
			l.c.fail("%v is to wait for %d ms: %v", it.AttemptRef, wait, p.GetRetry())
		}
	}
}

// beforeDue: nothing is due before its time, by the clock of whoever leads.
func (l *simLedger) beforeDue(s *fsm.State, e fsm.Entry, op *fsm.Due) {
	for _, a := range op.Items {
		if t, ok := s.Task(a.TaskRef); ok && t.State == fsm.Scheduled && t.Attempt == a.Attempt && t.DueMS > e.NowMS+1 {
			l.c.fail("%v is due at %d and was made ready at %d", a, t.DueMS, e.NowMS)
		}
	}
}

// beforeLose: an at-most-once attempt is given up once its worker has stopped it,
// or should have long ago.
func (l *simLedger) beforeLose(s *fsm.State, op *fsm.Lose) {
	for _, it := range op.Items {
		w := l.running[it.AttemptRef]
		if w == nil || !s.Live(it) || w.wasPaused() {
			continue
		}
		if x := w.held[it.AttemptRef]; x == nil || !x.deaf {
			l.c.fail("%v is given up and runs on worker %s", it.AttemptRef, w.name)
		}
	}
}

// scan looks at all tasks: what has ended stays as it is, and no worker has more
// than its slots and what may wait there for one.
func (l *simLedger) scan(s *fsm.State) {
	if err := s.Check(); err != nil {
		l.c.fail("%v", err)
	}
	live := map[fsm.WorkerID]uint32{}
	for job := range s.Jobs(0) {
		if id, ok := l.notCancelled[job.Error]; ok && id == job.ID && job.State == fsm.JobCancelled {
			l.c.fail("job %d was cancelled by a request of which all said that nothing was done", id)
		}
		for i := range job.Total {
			ref := fsm.TaskRef{Job: job.ID, Index: i}
			v, _ := s.Task(ref)
			if v.State == fsm.Assigned && !v.StartLogged { // one that has begun may wait for the lease of a process that is gone
				live[v.Worker]++
			}
			if was, ok := l.ended[ref]; ok && was != v.State {
				l.c.fail("task %v had ended as %v and is %v", ref, was, v.State)
			}
			if _, ok := l.completed[ref]; ok && v.State != fsm.Completed {
				l.c.fail("task %v had completed and is %v", ref, v.State)
			}
			if v.State.Terminal() {
				l.ended[ref] = v.State
			}
		}
	}
	for id, n := range live {
		if w := s.Worker(id); w == nil || n > w.Slots+simPrefetch {
			l.c.fail("worker %d holds %d attempts: %+v", id, n, w)
		}
	}
	for _, j := range l.c.jobs {
		if _, ok := s.Job(j.id); j.acked && !ok && !l.forgotten[j.id] {
			l.c.fail("job %d was acknowledged and is lost", j.id)
		}
	}
}

// wasCommitted: nothing reaches a worker that is not in the log.
func (l *simLedger) wasCommitted(it fsm.AssignItem) {
	if w, ok := l.given[it.AttemptRef]; !ok || w != it.Worker {
		l.c.fail("worker %d was told to execute %v, which was not committed", it.Worker, it.AttemptRef)
	}
}

// executionBegins notes that a worker begins to execute.
func (l *simLedger) executionBegins(a fsm.AttemptRef, atMostOnce bool, w *simWorker) {
	l.c.note("begin", uint64(a.Job)<<32|uint64(a.Index), uint64(a.Attempt))
	if _, twice := l.executed[a]; twice {
		l.c.fail("%v is executed twice", a)
	}
	l.executed[a], l.running[a] = false, w
	if !atMostOnce || a.Attempt <= l.floor[a.TaskRef] {
		return
	}
	l.begun[a.TaskRef]++
	if l.begun[a.TaskRef] > 1 {
		l.c.fail("at-most-once task %v was begun twice", a)
	}
}

func (l *simLedger) executionEnds(a fsm.AttemptRef, success bool) {
	if l.running[a] == nil {
		return // it had not begun
	}
	l.c.note("end", uint64(a.Job)<<32|uint64(a.Index), uint64(a.Attempt))
	delete(l.running, a)
	l.executed[a] = success
}

// drainNoted says that a term has heard that the worker drains; nil: that it
// does no longer.
func (w *simWorker) drainNoted(t *simTerm) {
	if t == nil {
		delete(w.c.drained, w)
		return
	}
	x := w.session
	var look func()
	look = func() {
		w.c.settle()
		switch {
		case t.over || x == nil || w.session != x:
		case t.seq.DrainingNow(w.id):
			w.c.drained[w] = simDrain{term: t, order: w.c.proposals}
		default: // the pipe is full: it has not been read yet
			w.c.after(5*time.Millisecond, look)
		}
	}
	look()
}

// accepted notes that a worker was told that its completion counts. A clean-up
// task runs again when its job was brought back meanwhile.
func (l *simLedger) accepted(a fsm.AttemptRef, w fsm.WorkerID) {
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		if v, ok := s.Task(a.TaskRef); ok && v.Cleanup && l.revives[a.Job] > 0 {
			return
		}
		if v, ok := s.Task(a.TaskRef); ok && (v.State != fsm.Completed || v.Attempt != a.Attempt || v.Worker != w) {
			l.c.fail("the completion of %v was acknowledged as accepted, and the task is %+v", a, v)
		}
	})
}

// saved notes that a worker was told that a checkpoint is kept: until the task
// ends, its next attempt begins with that or a later one.
func (l *simLedger) saved(a fsm.AttemptRef, number uint32) {
	l.c.log.truth.Read(func(s *fsm.State, _ uint64) {
		v, ok := s.Task(a.TaskRef)
		if !ok || v.State.Terminal() || a.Attempt <= l.floor[a.TaskRef] {
			return
		}
		c, ok := s.Checkpoint(a.TaskRef)
		if !ok || c.Attempt < a.Attempt || c.Attempt == a.Attempt && c.Number < number {
			l.c.fail("checkpoint %d of %v was acknowledged, and there is %+v", number, a, c)
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

// finalChecks: all replicas come to the same, byte by byte.
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
	c.everybodyWasTold()
	if n := len(c.simLedger.running); n > 0 {
		c.fail("%d executions go on that nobody holds", n)
	}
}
