package sequencer_test

import (
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ledger is what a simulation has seen, to judge by.
type ledger struct {
	c         *chaos
	attempts  map[fsm.TaskRef]uint32 // highest number given
	completed map[fsm.TaskRef]int
	begun     map[fsm.TaskRef]int // at-most-once attempts that a worker began
}

// observe looks at an entry before and after it is applied. One of unknown fate
// that a later leader commits may be refused in part; others never are.
func (l *ledger) observe(e fsm.Entry, late bool) func(fsm.Applied) {
	if l.attempts == nil {
		l.attempts, l.completed, l.begun = make(map[fsm.TaskRef]uint32), make(map[fsm.TaskRef]int), make(map[fsm.TaskRef]int)
	}
	var done []fsm.TaskRef
	var given []fsm.AssignItem
	l.c.machine.Read(func(s *fsm.State, _ uint64) {
		for _, op := range e.Ops {
			switch op := op.(type) {
			case *fsm.Complete:
				for _, it := range op.Items {
					if t, ok := s.Task(it.TaskRef); ok && t.State != fsm.Completed {
						done = append(done, it.TaskRef)
					}
				}
			case *fsm.Assign:
				given = append(given, op.Items...)
			}
		}
	})
	return func(applied fsm.Applied) {
		if applied.Rejected != fsm.Accepted && !late {
			l.c.fail("entry %d was refused: %v", applied.Index, applied.Rejected)
		}
		l.c.machine.Read(func(s *fsm.State, _ uint64) { l.applied(s, done, given) })
	}
}

func (l *ledger) applied(s *fsm.State, done []fsm.TaskRef, given []fsm.AssignItem) {
	for _, t := range done {
		if v, _ := s.Task(t); v.State == fsm.Completed {
			l.completed[t]++
			if l.completed[t] > 1 {
				l.c.fail("task %v was completed twice", t)
			}
		}
	}
	for _, it := range given {
		v, ok := s.Task(it.TaskRef)
		if !ok || v.Attempt != it.Attempt || v.Worker != it.Worker {
			continue // refused
		}
		if it.Attempt <= l.attempts[it.TaskRef] {
			l.c.fail("attempt %v comes after attempt %d", it.AttemptRef, l.attempts[it.TaskRef])
		}
		l.attempts[it.TaskRef] = it.Attempt
		l.dependencies(s, it.AttemptRef)
	}
}

// dependencies looks whether all that a task waits for has completed.
func (l *ledger) dependencies(s *fsm.State, a fsm.AttemptRef) {
	for _, d := range s.Dependencies(a.TaskRef) {
		if v, _ := s.Task(fsm.TaskRef{Job: a.Job, Index: d}); v.State != fsm.Completed {
			l.c.fail("%v was given away while task %d is %v", a, d, v.State)
		}
	}
}

// begins notes that a worker begins an at-most-once attempt.
func (l *ledger) begins(a fsm.AttemptRef) {
	l.begun[a.TaskRef]++
	if l.begun[a.TaskRef] > 1 {
		l.c.fail("at-most-once task %v was begun twice", a)
	}
}

// accepted notes that a worker was told that its completion counts.
func (l *ledger) accepted(a fsm.AttemptRef, w fsm.WorkerID) {
	l.c.machine.Read(func(s *fsm.State, _ uint64) {
		if v, ok := s.Task(a.TaskRef); ok && (v.State != fsm.Completed || v.Attempt != a.Attempt || v.Worker != w) {
			l.c.fail("the completion of %v was acknowledged as accepted, and the task is %+v", a, v)
		}
	})
}

func (l *ledger) jobEnded(id fsm.JobID) bool {
	ended := false
	l.c.machine.Read(func(s *fsm.State, _ uint64) {
		job, ok := s.Job(id)
		ended = !ok || job.State.Terminal() // forgotten, so it has ended
	})
	return ended
}

// plan decides what will become of an attempt at its worker.
func (c *chaos) plan(it fsm.AssignItem, w *chaosWorker) *chaosAttempt {
	var p *dtaskv1.TaskPolicy
	c.machine.Read(func(s *fsm.State, _ uint64) {
		p = s.Policy(it.TaskRef)
		c.dependencies(s, it.AttemptRef)
	})
	x := &chaosAttempt{
		asking: p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE,
		chatty: c.chance(70), silent: c.chance(5), outcome: c.outcome(),
	}
	switch n := c.rng.IntN(100); {
	case n < 60:
		x.length = c.upTo(300 * time.Millisecond)
	case n < 90:
		x.length = c.upTo(3 * time.Second)
	default:
		x.length = c.upTo(15 * time.Second)
	}
	if limit := time.Duration(p.GetTimeoutMs()) * time.Millisecond; x.length > limit {
		x.length, x.outcome = limit, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT, Error: "time-out"}
	}
	if c.chance(3) {
		x.outcome = nil
	}
	x.ends = time.Now().Add(x.length)
	if c.chance(2) && !c.calm {
		w.leaving = true
	}
	return x
}

func (c *chaos) outcome() *dtaskv1.Outcome {
	switch n := c.rng.IntN(100); {
	case n < 70:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: make([]byte, c.rng.IntN(100))}
	case n < 85:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 1}
	case n < 88:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Fatal: true, Error: "fatal"}
	case n < 91:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Temporary: true}
	case n < 93:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED}
	case n < 97:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED}
	case n < 98:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED}
	case n < 99:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Signal: "KILL"}
	}
	switch c.rng.IntN(4) { // what no worker should say
	case 0:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: make([]byte, 5000)}
	case 1:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, OutputSha256: make([]byte, 31)}
	case 2:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: strings.Repeat("x", 10_000)}
	default:
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind(99)}
	}
}
