package fsm

import "testing"

// after is a task with one dependency.
func after(name string, dep uint32, when Condition) taskPlan {
	return taskPlan{name: name, deps: []uint32{dep}, when: []Condition{when}}
}

// sweep is a job of an array of n tasks (0 to n-1) of which maxFailures may fail,
// and what follows it.
func sweep(n, maxFailures uint32, following ...taskPlan) *jobPlan {
	p := &jobPlan{onFailure: stopOnFailure, maxFailures: maxFailures}
	p.addArray(arrayPlan{Array: Array{Name: "s", Ranges: []IndexRange{{0, 1, n}}, Items: n, Chunk: 1}})
	p.tasks = append(p.tasks, following...)
	return p
}

// run ends tasks of job 1: those below failures fail, the others complete.
func run(w *world, first, end, failures uint32) {
	w.t.Helper()
	for i := first; i < end; i++ {
		if h := w.assign(i, 1); i < failures {
			w.do(failed(h, NextDead))
		} else {
			w.do(complete(h))
		}
	}
}

func TestAConditionDecidesWhetherADependentRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when     Condition
		failures uint32
		want     TaskState
		why      string
	}{
		{WhenCompleted, 0, Pending, ""},
		{WhenCompleted, 1, Cancelled, "dependency s[0] failed"},
		{WhenEnded, 0, Pending, ""},
		{WhenEnded, 3, Pending, ""},
		{WhenTolerated, 0, Pending, ""},
		{WhenTolerated, 2, Pending, ""},
		{WhenTolerated, 3, Cancelled, "dependency s has more than 2 failed tasks"},
		{WhenFailed, 0, Cancelled, "skipped: dependency s did not fail"},
		{WhenFailed, 1, Pending, ""},
	} {
		w := newWorld(t).do(worker(1))
		w.submit(going(sweep(4, 2, after("t", 0, c.when))))
		run(w, 0, 3, c.failures)
		if got := w.state(1, 4); got != Blocked && c.want != Cancelled || got.Terminal() && c.failures == 0 {
			t.Errorf("when %v, 1 of 4 tasks open: is %v", c.when, got)
		}
		run(w, 3, 4, c.failures)
		if got, why := w.state(1, 4), w.s.Result(ref(1, 4)).Error; got != c.want || why != c.why {
			t.Errorf("when %v, %d failures: is %v (%s), want %v (%s)", c.when, c.failures, got, why, c.want, c.why)
		}
	}
}

// A sweep with tolerated failures whose collector was cancelled has not done what it
// was for.
func TestATaskCancelledBecauseOfAToleratedFailureFailsItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(sweep(4, 1, after("collect", 0, WhenCompleted)))
	run(w, 0, 4, 1)
	wantJob(w, "at the end", JobFailed, JobFailed, "task collect cancelled: dependency s[0] failed")
}

func TestATaskCancelledBecauseOfAToleratedFailureIsCovered(t *testing.T) {
	t.Parallel()
	for _, when := range []Condition{WhenEnded, WhenTolerated, WhenFailed} {
		w := newWorld(t).do(worker(1))
		w.submit(sweep(4, 1, after("collect", 0, WhenCompleted), after("mail", 4, WhenCompleted), after("report", 5, when)))
		run(w, 0, 4, 1)
		wantStates(w, "the sweep has ended", Dead, Completed, Completed, Completed, Cancelled, Cancelled, Pending)
		run(w, 6, 7, 0)
		if when == WhenFailed { // it only reacts to the failure
			wantJob(w, "at the end", JobFailed, JobFailed, "task collect cancelled: dependency s[0] failed")
			continue
		}
		wantJob(w, "at the end", JobCompleted, JobCompleted, "2 tasks cancelled, the first: task collect: dependency s[0] failed")
	}
}

func TestASkippedTaskSkipsItsDependentsAndDoesNotFailItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil)
	p.tasks = append(p.tasks, after("repair", 0, WhenFailed), after("verify", 1, WhenCompleted), after("mourn", 1, WhenFailed), after("log", 1, WhenEnded))
	w.submit(p)
	run(w, 0, 1, 0)
	wantStates(w, "the task has completed", Completed, Cancelled, Cancelled, Cancelled, Pending)
	wantCancelled(w, "the task has completed", map[uint32]string{
		1: "skipped: dependency t0 did not fail", 2: "skipped: dependency repair was skipped", 3: "skipped: dependency repair did not fail",
	})
	run(w, 4, 5, 0)
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
}

// A job that stops still runs the tasks that depend on how others end, and what
// follows these; a task that only tolerates failures does not start.
func TestAStoppingJobRunsItsHandlersOfFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil)
	p.tasks = append(p.tasks, after("repair", 0, WhenFailed), after("verify", 2, WhenCompleted), after("log", 1, WhenEnded), after("proceed", 1, WhenTolerated))
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead))
	wantStates(w, "stopping", Dead, Cancelled, Pending, Blocked, Pending, Cancelled)
	h := w.assign(2, 1)
	w.do(failed(h, NextRetry)).do(&Due{Items: []AttemptRef{h.AttemptRef}})
	run(w, 2, 5, 0)
	wantJob(w, "at the end", JobFailed, JobFailed, "task t0 dead: exit 1")
}

// A retry of a failed task runs again what depended on it. A handler of its failure
// that has run is left alone.
func TestARetriedTaskDecidesItsDependentsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := going(plan(nil))
	p.tasks = append(p.tasks, after("next", 0, WhenCompleted), after("repair", 0, WhenFailed), after("undo", 0, WhenFailed), after("log", 0, WhenEnded))
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead))
	run(w, 2, 3, 0)
	w.do(failed(w.assign(3, 1), NextDead))
	wantStates(w, "failed", Dead, Cancelled, Completed, Dead, Pending)
	w.do(&Revive{Job: 1, Tasks: []uint32{0, 3}})
	wantStates(w, "revived", Pending, Blocked, Completed, Blocked, Pending)
	run(w, 0, 1, 0)
	wantStates(w, "completed", Completed, Pending, Completed, Cancelled, Pending)
	run(w, 1, 2, 0)
	run(w, 4, 5, 0)
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
}

// A task that was cancelled because of a failure is no longer a failure when a retry
// shows that it is not needed.
func TestARevivalChangesWhyATaskStaysCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := going(plan(nil, nil))
	p.tasks = append(p.tasks, taskPlan{name: "both", deps: []uint32{0, 1}, when: []Condition{WhenCompleted, WhenFailed}}, after("last", 2, WhenFailed))
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead))
	run(w, 1, 2, 0)
	wantStates(w, "failed", Dead, Completed, Cancelled, Pending)
	w.do(&Revive{Job: 1})
	wantCancelled(w, "revived", map[uint32]string{2: "skipped: dependency t1 did not fail"})
	run(w, 0, 1, 0)
	run(w, 3, 4, 0)
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
}

func TestConditionsOfCleanupTasksWaitForTheOrdinaryTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil)
	p.tasks = append(p.tasks, taskPlan{name: "f", policy: 2}, taskPlan{name: "g", policy: 2, deps: []uint32{1}, when: []Condition{WhenEnded}})
	w.submit(p)
	w.do(&CancelTask{Task: ref(1, 1)})
	wantStates(w, "one is cancelled", Pending, Cancelled, Blocked)
	run(w, 0, 1, 0)
	run(w, 2, 3, 0)
	wantJob(w, "at the end", JobCancelled, JobCompleted, "")
}

func TestAnUnknownConditionIsMalformed(t *testing.T) {
	t.Parallel()
	b := NewChunkBuilder(0)
	b.Add("a", 0, nil, nil)
	b.AddConditional("b", 0, []uint32{0}, []Condition{numConditions}, nil)
	data := Encode(nil, Entry{Ops: []Op{&AddChunk{Job: 1, Chunk: b.Chunk()}}})
	if _, err := Decode(data); err == nil {
		t.Error("decoded an entry with an unknown condition")
	}
	if b = NewChunkBuilder(0); true {
		b.Add("a", 0, nil, nil)
		b.AddConditional("b", 0, []uint32{0}, []Condition{WhenEnded, WhenEnded}, nil)
	}
	if !b.Chunk().invalid {
		t.Error("accepted two conditions for one dependency")
	}
}

// A retry may cancel what a task waits for: that turns out not to be needed. If nothing else is
// open, the task is ready.
func TestARevivalThatEndsALastDependencyMakesItsTaskReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetLevel{Level: MaxLevel}).do(worker(1))
	p := going(plan(nil, nil, nil))
	p.tasks = append(p.tasks,
		taskPlan{name: "undo", deps: []uint32{0, 1}, when: []Condition{WhenCompleted, WhenFailed}},
		taskPlan{name: "report", deps: []uint32{2, 3}, when: []Condition{WhenCompleted, WhenFailed}},
		taskPlan{name: "last", deps: []uint32{3, 4}, when: []Condition{WhenEnded, WhenEnded}})
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead))
	run(w, 1, 2, 0)
	wantStates(w, "before the retry", Dead, Completed, Pending, Cancelled, Blocked, Blocked)
	w.do(&Revive{Job: 1, Precondition: Precondition{Key: "k"}})
	wantStates(w, "after it", Pending, Completed, Pending, Cancelled, Cancelled, Pending)
	for _, i := range []uint32{0, 2, 5} {
		run(w, i, i+1, 0)
	}
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
}
