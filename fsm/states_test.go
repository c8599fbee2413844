package fsm

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// States that a task can also reach before it is ready.
const (
	failedBlocked = numStates + iota
	cancelledBlocked
	// The same for a cleanup task.
	finalCompleted
	finalFailed
	finalCancelled
	finalDead
	finalLost
	blockedUntil // a time
	failedUntil
	cancelledUntil
	pureReady // with a remembered result under its key
	numDriven
)

// driveFinal brings the cleanup task of a failed job into a terminal state.
func driveFinal(t *testing.T, to TaskState) (*world, TaskRef) {
	t.Helper()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil)
	p.tasks[1].policy = 3
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextFailed))
	switch h := w.assign(1, 1); to {
	case finalCompleted:
		w.do(complete(h))
	case finalFailed:
		w.do(failed(h, NextFailed))
	case finalCancelled:
		w.do(&CancelTask{Task: ref(1, 1)})
	case finalDead:
		w.do(failed(h, NextDead))
	case finalLost:
		w.do(&RecordStart{Items: []HeldAttempt{h}}, &Lose{Items: []HeldAttempt{h}})
	}
	return w, ref(1, 1)
}

// drive brings a task into a state.
func drive(t *testing.T, to TaskState) (*world, TaskRef) {
	t.Helper()
	if to == pureReady {
		w := pureWorld(t)
		return w, ref(1, 1)
	}
	if to >= finalCompleted && to <= finalLost {
		return driveFinal(t, to)
	}
	w := newWorld(t).do(worker(1))
	p := plan(nil, []uint32{0})
	p.tasks[0].policy, p.tasks[1].policy = 0, 1
	p.onFailure = continueOnFailure
	w.submit(p)
	switch to {
	case Blocked:
		return w, ref(1, 1)
	case failedBlocked:
		w.do(&FailTask{Task: ref(1, 1), Error: "late"})
		return w, ref(1, 1)
	case cancelledBlocked:
		w.do(&CancelTask{Task: ref(1, 1)})
		return w, ref(1, 1)
	case blockedUntil, failedUntil, cancelledUntil:
		w.do(&Update{Job: 1, Task: 1, Set: SetNotBefore, NotBeforeMS: 900})
		if to == blockedUntil {
			return w, ref(1, 1)
		}
	}
	w.do(complete(w.assign(0, 1)))
	switch to {
	case Pending:
	case failedUntil:
		w.do(&FailTask{Task: ref(1, 1), Error: "late"})
		return w, ref(1, 1)
	case cancelledUntil:
		w.do(&CancelTask{Task: ref(1, 1)})
		return w, ref(1, 1)
	case Assigned:
		w.assign(1, 1)
	case Scheduled:
		w.do(failed(w.assign(1, 1), NextRetry))
	case Completed:
		w.do(complete(w.assign(1, 1)))
	case Failed:
		w.do(failed(w.assign(1, 1), NextFailed))
	case Dead:
		w.do(failed(w.assign(1, 1), NextDead))
	case Lost:
		h := w.assign(1, 1)
		w.do(&RecordStart{Items: []HeldAttempt{h}}, &Lose{Items: []HeldAttempt{h}})
	case Cancelled:
		w.do(&CancelTask{Task: ref(1, 1)})
	}
	if got := w.state(1, 1); got != to {
		t.Fatalf("got state %v, want %v", got, to)
	}
	return w, ref(1, 1)
}

// action is an event for task 1/1, with the name that the diagram shows.
type action struct {
	name string
	ops  func(at AttemptRef) []Op
}

func one(name string, op func(h HeldAttempt) Op) action {
	return action{name, func(at AttemptRef) []Op { return []Op{op(HeldAttempt{at, 1})} }}
}

var actions = []action{
	{"dependencies completed", func(AttemptRef) []Op {
		give := &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 1, 1))}}
		return []Op{give, complete(hold(1, 0, 1, 1))}
	}},
	{"dependency failed", func(AttemptRef) []Op { return []Op{&FailTask{Task: ref(1, 0), Error: "late"}} }},
	one("assigned", func(h HeldAttempt) Op {
		h.Attempt++
		return &Assign{Items: []AssignItem{AssignItem(h)}}
	}),
	one("completed", func(h HeldAttempt) Op { return complete(h) }),
	one("failed, retry scheduled", func(h HeldAttempt) Op { return failed(h, NextRetry) }),
	one("failed, retries exhausted", func(h HeldAttempt) Op { return failed(h, NextDead) }),
	one("failed permanently", func(h HeldAttempt) Op { return failed(h, NextFailed) }),
	one("requeued", func(h HeldAttempt) Op { return &Requeue{Items: []HeldAttempt{h}} }),
	{"outcome unknown", func(at AttemptRef) []Op {
		h := []HeldAttempt{{at, 1}}
		return []Op{&RecordStart{Items: h}, &Lose{Items: h}}
	}},
	one("due", func(h HeldAttempt) Op { return &Due{Items: []AttemptRef{h.AttemptRef}} }),
	one("queued too long", func(h HeldAttempt) Op { return &FailTask{Task: h.TaskRef, Error: "late"} }),
	one("cancelled", func(h HeldAttempt) Op { return &CancelTask{Task: h.TaskRef} }),
	one("job cancelled", func(h HeldAttempt) Op { return &CancelJob{Job: h.Job} }),
	one("job failed", func(h HeldAttempt) Op { return &FailJob{Job: h.Job} }),
	one("revived", func(h HeldAttempt) Op { return &Revive{Job: h.Job} }),
	one("updated to a later time", func(h HeldAttempt) Op { return &Update{Job: h.Job, Task: h.Index, Set: SetNotBefore, NotBeforeMS: 950} }),
	one("result reused", func(h HeldAttempt) Op { return &ReuseResults{Items: []TaskRef{h.TaskRef}} }),
	one("purged", func(h HeldAttempt) Op { return &Purge{Job: h.Job} }),
}

// Every operation is tried in every state. The transitions must be exactly those
// of the table, and the diagram shows them.
func TestTheStateDiagramMatchesTheOperations(t *testing.T) {
	t.Parallel()
	var seen [numStates]uint16
	why := map[[2]TaskState][]string{}
	for driven := Blocked; driven < numDriven; driven++ {
		for _, a := range actions {
			w, at := drive(t, driven)
			v, _ := w.s.Task(at)
			from := v.State
			w.try(a.ops(AttemptRef{at, v.Attempt})...)
			to := w.state(at.Job, at.Index)
			if to == from {
				continue
			}
			if legal[from]&(1<<to) == 0 {
				t.Errorf("%v → %v by %q is not in the table", from, to, a.name)
			}
			seen[from] |= 1 << to
			if names := why[[2]TaskState{from, to}]; !slices.Contains(names, a.name) {
				why[[2]TaskState{from, to}] = append(names, a.name)
			}
		}
	}
	if seen != legal {
		t.Errorf("got transitions %b, want those of the table %b", seen, legal)
	}
	golden(t, filepath.Join("..", "docs", "states.md"), diagram(why))
}

func diagram(why map[[2]TaskState][]string) []byte {
	var b bytes.Buffer
	b.WriteString(`# Task states

Generated by ` + "`go test ./fsm -run StateDiagram -rewrite`" + ` from the effects of the
operations. The same test fails if this file is out of date.

` + "```mermaid\nstateDiagram-v2\n    [*] --> blocked: submitted\n    [*] --> pending: submitted without dependencies\n")
	for from := Blocked; from < numStates; from++ {
		for to := Blocked; to < numStates; to++ {
			for i, name := range why[[2]TaskState{from, to}] {
				if i == 0 {
					fmt.Fprintf(&b, "    %v --> %v: %s", from, to, name)
				} else {
					fmt.Fprintf(&b, "<br/>%s", name)
				}
			}
			if why[[2]TaskState{from, to}] != nil {
				b.WriteByte('\n')
			}
		}
		if from.Terminal() {
			fmt.Fprintf(&b, "    %v --> [*]\n", from)
		}
	}
	b.WriteString("```\n\nA task is shown as running if it is assigned and its attempt has started. The log has the\nstart of at-most-once attempts only. Workers report the starts of others, which are not stored:\nfollowers show such a task as assigned, and so does a new leader until the worker has reconnected.\n\nThe ordinary tasks of a job that needs other jobs are blocked until these have ended as required.\n\nOnly a cleanup task leaves completed: it runs again after revived tasks.\n")
	return b.Bytes()
}

// Users can revive every task that ended without completing. Its job's cleanup tasks
// run again after it.
func TestACompletedTaskStaysCompleted(t *testing.T) {
	t.Parallel()
	if legal[Completed] != 1<<Blocked {
		t.Errorf("got successors %b of completed", legal[Completed])
	}
	w, at := drive(t, Completed)
	refused(t, w, "reviving a completed task", WrongState, &Revive{Job: at.Job})
	w, at = drive(t, finalCompleted)
	refused(t, w, "reviving a completed cleanup task", WrongState, &Revive{Job: at.Job, Tasks: []uint32{1}})
	w.do(&Revive{Job: at.Job})
	wantStates(w, "revived with the ordinary tasks", Pending, Blocked)
}

// move panics on an illegal transition: no operation may attempt one.
func TestMovePanicsOnAnIllegalTransition(t *testing.T) {
	t.Parallel()
	for from := Blocked; from < numStates; from++ {
		for to := Blocked; to < numStates; to++ {
			w, at := drive(t, from)
			panicked := func() (panicked bool) {
				defer func() { panicked = recover() != nil }()
				w.s.move(w.s.jobs.write(w.s.own, at.Job), at.Index, to)
				return false
			}()
			if allowed := legal[from]&(1<<to) != 0; panicked == allowed {
				t.Errorf("%v → %v: got panic %v, allowed %v", from, to, panicked, allowed)
			}
		}
		if back := uint16(1<<Pending | 1<<Scheduled | 1<<Blocked | 1<<Failed); from.Terminal() && legal[from]&^back != 0 {
			t.Errorf("%v is terminal, but can be followed by states other than those of a revived or purged task", from)
		}
	}
}
