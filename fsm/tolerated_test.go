package fsm

import "testing"

// tolerating is a job of n tasks of which maxFailures may fail, and a task (n)
// after the first, which tolerates its failure.
func tolerating(n int, maxFailures uint32) *jobPlan {
	p := plan(make([][]uint32, n)...)
	p.tasks = append(p.tasks, taskPlan{name: "after", deps: []uint32{0}, when: []Condition{WhenTolerated}})
	p.maxFailures = maxFailures
	return p
}

func TestToleratedFailuresNeitherStopNorFailTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(tolerating(4, 2))
	w.do(failed(w.assign(0, 1), NextDead))
	h := w.assign(1, 1)
	w.do(failed(h, NextFailed))
	wantStates(w, "two have failed", Dead, Failed, Pending, Pending, Pending)
	wantJob(w, "two have failed", JobRunning, 0, "")
	for i := uint32(2); i < 5; i++ {
		w.do(complete(w.assign(i, 1)))
	}
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
	if j, _ := w.s.Job(1); j.Tolerated != 2 || j.Failed() != 2 {
		t.Errorf("got %d tolerated failures of %d", j.Tolerated, j.Failed())
	}
}

func TestOneFailureMoreThanToleratedFailsTheJob(t *testing.T) {
	t.Parallel()
	const why = "2 tasks failed, more than 1: task t1 dead: exit 1"
	for _, goesOn := range []bool{false, true} {
		w := newWorld(t).do(worker(1))
		p := tolerating(4, 1)
		after := []TaskState{Dead, Dead, Cancelled, Cancelled, Cancelled}
		if goesOn {
			p, after = going(p), []TaskState{Dead, Dead, Pending, Pending, Pending}
		}
		w.submit(p)
		w.do(failed(w.assign(0, 1), NextDead)).do(failed(w.assign(1, 1), NextDead))
		wantStates(w, "two have failed", after...)
		if j, _ := w.s.Job(1); j.Error != why || j.Tolerated != 0 || j.Stopping == goesOn {
			t.Errorf("got job %+v", j)
		}
		// One of them is revived: the remaining failure is tolerated.
		w.do(&Revive{Job: 1, Tasks: []uint32{1}})
		wantJob(w, "revived", JobRunning, 0, "")
		for i := uint32(1); i < 5; i++ {
			w.do(complete(w.assign(i, 1)))
		}
		wantJob(w, "at the end", JobCompleted, JobCompleted, "")
	}
}

// A task that a user cancelled is not a failure, but its job is not completed.
func TestACancelledTaskIsNotAToleratedFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(tolerating(2, 2))
	w.do(failed(w.assign(0, 1), NextDead)).do(&CancelTask{Task: ref(1, 1)}).do(complete(w.assign(2, 1)))
	wantJob(w, "at the end", JobCancelled, JobCancelled, "")
}

// Failures of cleanup tasks are not tolerated.
func TestAFailedCleanupTaskIsNotTolerated(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil)
	p.tasks[1].policy, p.maxFailures = 2, 2
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextDead)).do(failed(w.assign(1, 1), NextDead))
	wantJob(w, "at the end", JobFailed, JobCompleted, "cleanup task t1 dead: exit 1")
}
