package fsm

import "testing"

// cleaned is a chain of two ordinary tasks and a chain of two cleanup tasks.
func cleaned() *jobPlan {
	p := plan(nil, []uint32{0}, nil, []uint32{2})
	p.tasks[2].policy, p.tasks[3].policy = 2, 2
	return p
}

// An end of the ordinary tasks, and the resulting state of the job.
type ending struct {
	ops     func(w *world) []Op
	outcome JobState
	err     string
}

var ordinaryEnds = map[string]ending{
	"completed": {func(w *world) []Op {
		w.do(complete(w.assign(0, 1)))
		return []Op{complete(w.assign(1, 1))}
	}, JobCompleted, ""},
	"failed": {func(w *world) []Op { return []Op{failed(w.assign(0, 1), NextDead)} }, JobFailed, "task t0 dead: exit 1"},
	"cancelled": {func(w *world) []Op {
		w.assign(0, 1)
		return []Op{&CancelJob{Job: 1, Reason: "not needed"}}
	}, JobCancelled, "not needed"},
	"cancelled by the task": {func(*world) []Op { return []Op{&CancelTask{Task: ref(1, 0)}} }, JobCancelled, ""},
	"late":                  {func(*world) []Op { return []Op{&FailJob{Job: 1, Error: "late"}} }, JobFailed, "late"},
}

func wantJob(w *world, what string, state, outcome JobState, err string) {
	w.t.Helper()
	if j, _ := w.s.Job(1); j.State != state || j.Outcome != outcome || j.Error != err {
		w.t.Errorf("%s: got job %v (%v), %q; want %v (%v), %q", what, j.State, j.Outcome, j.Error, state, outcome, err)
	}
}

func TestCleanupTasksRunRegardlessOfTheOutcome(t *testing.T) {
	t.Parallel()
	for name, end := range ordinaryEnds {
		w := newWorld(t).do(worker(1))
		w.submit(cleaned())
		if got := states(w, 1); got[2] != Blocked || got[3] != Blocked {
			t.Errorf("%s: got initial states %v of cleanup tasks", name, got)
		}
		w.do(end.ops(w)...)
		j, _ := w.s.Job(1)
		if !j.CleaningUp() || j.Outcome != end.outcome || j.Error != end.err {
			t.Errorf("%s: got job %v (%v), %q", name, j.State, j.Outcome, j.Error)
		}
		if w.state(1, 2) != Pending || w.state(1, 3) != Blocked {
			t.Errorf("%s: got cleanup tasks %v", name, states(w, 1)[2:])
		}
		refused(t, w, name+": cancelled during cleanup", AlreadyEnded, &CancelJob{Job: 1})
		refused(t, w, name+": deadline during cleanup", AlreadyEnded, &FailJob{Job: 1})
		refused(t, w, name+": revived during cleanup", WrongState, &Revive{Job: 1})
		w.do(complete(w.assign(2, 1)))
		w.do(failed(w.assign(3, 1), NextRetry))
		v, _ := w.s.Task(ref(1, 3))
		w.do(&Due{Items: []AttemptRef{att(1, 3, v.Attempt)}}).do(complete(w.assign(3, 1)))
		wantJob(w, name, end.outcome, end.outcome, end.err)
	}
}

func TestAFailedCleanupTaskFailsOnlyAJobThatCompleted(t *testing.T) {
	t.Parallel()
	for name, end := range ordinaryEnds {
		w := newWorld(t).do(worker(1))
		w.submit(cleaned())
		w.do(end.ops(w)...)
		w.do(failed(w.assign(2, 1), NextDead))
		if w.state(1, 3) != Cancelled {
			t.Errorf("%s: got state %v of its dependent", name, w.state(1, 3))
		}
		state, err := end.outcome, end.err
		if state == JobCompleted {
			state = JobFailed
		}
		if err == "" {
			err = "cleanup task t2 dead: exit 1"
		}
		wantJob(w, name, state, end.outcome, err)
	}
}

func TestCancellingWithCleanupEndsCleanupTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(cleaned())
	w.assign(0, 1)
	w.do(&CancelJob{Job: 1, Reason: "enough", IncludeCleanup: true})
	wantStates(w, "immediately", Cancelled, Cancelled, Cancelled, Cancelled)
	wantJob(w, "immediately", JobCancelled, JobCancelled, "enough")
	for name, end := range ordinaryEnds {
		w := newWorld(t).do(worker(1))
		w.submit(cleaned())
		w.do(end.ops(w)...)
		w.assign(2, 1)
		fx := new(Effects)
		w.s.Apply(Entry{Ops: []Op{&CancelJob{Job: 1, Reason: "now", IncludeCleanup: true}}}, fx)
		state, err := end.outcome, end.err
		if state == JobCompleted {
			state, err = JobCancelled, "now"
		}
		wantJob(w, name, state, end.outcome, err)
		if len(fx.EndedAttempts) != 1 || len(fx.EndedJobs) != 1 {
			t.Errorf("%s: ended %v, jobs %v", name, fx.EndedAttempts, fx.EndedJobs)
		}
	}
}

// A failed cleanup task does not keep the others from running, nor does the loss
// of its worker in a stopping job.
func TestCleanupTasksRunIndependently(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil, nil)
	p.tasks[1].policy, p.tasks[2].policy = 2, 2
	w.submit(p)
	w.do(failed(w.assign(0, 1), NextFailed))
	w.do(failed(w.assign(1, 1), NextFailed))
	h := w.assign(2, 1)
	w.do(&RequeueLost{Items: []HeldAttempt{h}})
	wantStates(w, "requeue", Failed, Failed, Pending)
	w.do(complete(w.assign(2, 1)))
	wantJob(w, "at the end", JobFailed, JobFailed, "task t0 failed: exit 1")
}

func TestCleanupTasksRunAgainAfterARetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(cleaned())
	w.do(failed(w.assign(0, 1), NextDead))
	first := w.assign(2, 1)
	w.do(complete(first)).do(complete(w.assign(3, 1)))
	w.do(&Revive{Job: 1})
	wantStates(w, "revived", Pending, Blocked, Blocked, Blocked)
	wantJob(w, "revived", JobRunning, 0, "")
	refused(t, w, "the first completion again", StaleAttempt, complete(first))
	w.do(complete(w.assign(0, 1))).do(complete(w.assign(1, 1)))
	if h := w.assign(2, 1); h.Attempt != 2 {
		t.Errorf("got attempt %d of the cleanup task", h.Attempt)
	}
	w.do(complete(hold(1, 2, 2, 1)))
	w.do(failed(w.assign(3, 1), NextDead))
	wantJob(w, "its cleanup failed", JobFailed, JobCompleted, "cleanup task t3 dead: exit 1")
	// Only the cleanup failed: only its failed tasks are revived.
	w.do(&Revive{Job: 1})
	wantStates(w, "cleaning up again", Completed, Completed, Completed, Pending)
	wantJob(w, "cleaning up again", JobRunning, JobCompleted, "")
	w.do(complete(w.assign(3, 1)))
	wantJob(w, "at the end", JobCompleted, JobCompleted, "")
}

// A cleanup task that a user cancelled waits for its turn after it is revived.
func TestARevivedCleanupTaskWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(cleaned())
	w.do(&CancelTask{Task: ref(1, 2)})
	wantStates(w, "cancelled early", Pending, Blocked, Cancelled, Cancelled)
	w.do(&Revive{Job: 1})
	wantStates(w, "revived", Pending, Blocked, Blocked, Blocked)
}

func TestCleanupTasksComeLastAndDependOnlyOnEachOther(t *testing.T) {
	t.Parallel()
	for name, policies := range map[string][]uint32{
		"an ordinary task is last":                   {0, 2, 0},
		"a cleanup task depends on an ordinary one":  {0, 0, 2},
		"without ordinary tasks":                     {2, 2, 2},
		"an ordinary task depends on a cleanup task": {2, 0, 0},
	} {
		w := newWorld(t)
		p := plan(nil, nil, []uint32{1})
		for i, n := range policies {
			p.tasks[i].policy = n
		}
		for _, size := range []int{1, 3} {
			if r := w.try(p.submit(w.s.NextJob(), name, size)...); r != Malformed {
				t.Errorf("%s, in chunks of %d: got %v", name, size, r)
			}
		}
		if _, there := w.s.Job(1); there {
			t.Errorf("%s: got a job", name)
		}
	}
}

func TestARunningCleanupSurvivesARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(cleaned())
	w.do(&CancelJob{Job: 1, Reason: "enough"})
	again := restored(t, snapshotOf(t, w.s))
	for _, s := range []*State{w.s, again} {
		if r := s.Apply(Entry{NowMS: 99, Ops: []Op{&Assign{Items: []AssignItem{AssignItem(hold(1, 2, 1, 1))}}, complete(hold(1, 2, 1, 1))}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	sameState(t, "restored", again, w.s)
}
