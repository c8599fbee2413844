package fsm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// states returns the state of each task of a job.
func states(w *world, id JobID) []TaskState {
	w.t.Helper()
	j, _ := w.s.Job(id)
	list := make([]TaskState, j.Total)
	for i := range list {
		list[i] = w.state(id, uint32(i))
	}
	return list
}

func wantStates(w *world, what string, want ...TaskState) {
	w.t.Helper()
	if got := states(w, 1); !slices.Equal(got, want) {
		w.t.Errorf("%s: got tasks %v, want %v", what, got, want)
	}
}

// going makes a job continue when a task fails.
func going(p *jobPlan) *jobPlan {
	p.onFailure = continueOnFailure
	return p
}

func TestARevivedTaskKeepsItsNumberAndStartsWithoutFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1), worker(2))
	w.submit(chain(2))
	lost := w.assign(0, 2)
	w.do(&RequeueLost{Items: []HeldAttempt{lost}})
	dead := w.assign(0, 1)
	w.do(failed(dead, NextDead)).do(&Revive{Job: 1})
	wantStates(w, "revived", Pending, Blocked)
	v, _ := w.s.Task(ref(1, 0))
	if v.Attempt != 2 || v.Failures != 0 || v.Losses != 0 || v.EndedMS != 0 {
		t.Errorf("revived: got %+v", v)
	}
	if j, _ := w.s.Job(1); j.State != JobRunning || j.Error != "" || j.EndedMS != 0 || j.RevivedMS != w.now || j.Stopping {
		t.Errorf("got job %+v", j)
	}
	for _, zombie := range []HeldAttempt{lost, dead} {
		refused(t, w, "completing an old attempt", StaleAttempt, complete(zombie))
		refused(t, w, "failing an old attempt", StaleAttempt, failed(zombie, NextDead))
		refused(t, w, "an old retry time", WrongState, &Due{Items: []AttemptRef{zombie.AttemptRef}})
	}
	refused(t, w, "the old number", StaleAttempt, &Assign{Items: []AssignItem{AssignItem(dead)}})
	next := w.assign(0, 1)
	if next.Attempt != 3 {
		t.Errorf("got attempt %d", next.Attempt)
	}
	refused(t, w, "completing an old attempt", StaleAttempt, complete(dead))
	w.do(complete(next)).do(complete(w.assign(1, 1)))
	if j, _ := w.s.Job(1); j.State != JobCompleted {
		t.Errorf("got job state %v", j.State)
	}
	refused(t, w, "reviving completed tasks", WrongState, &Revive{Job: 1})
}

func TestARunningJobIsRevived(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, []uint32{0}, []uint32{2}, nil)))
	live := w.assign(1, 1)
	w.do(failed(w.assign(0, 1), NextFailed)).do(failed(w.assign(4, 1), NextDead))
	wantStates(w, "failed", Failed, Assigned, Cancelled, Cancelled, Dead)
	refused(t, w, "reviving a running task", WrongState, &Revive{Job: 1, Tasks: []uint32{1}})
	refused(t, w, "reviving a dependent of a failed task", WrongState, &Revive{Job: 1, Tasks: []uint32{2}})
	refused(t, w, "reviving a dependent of a failed task, and another", WrongState, &Revive{Job: 1, Tasks: []uint32{2, 4}})
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "revived", Pending, Assigned, Blocked, Blocked, Dead)
	if j, _ := w.s.Job(1); j.Error != "task t4 dead: exit 1" {
		t.Errorf("with a failed task: got job error %q", j.Error)
	}
	w.do(complete(live)).do(&Revive{Job: 1})
	wantStates(w, "revived the rest", Pending, Completed, Blocked, Blocked, Pending)
	if j, _ := w.s.Job(1); j.Error != "" {
		t.Errorf("without failed tasks: got job error %q", j.Error)
	}
}

// The live attempts of a stopping job count as before, and may be retried again.
func TestAStoppingJobIsRevivedWithItsLiveAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil, nil, []uint32{2}))
	live := w.assign(1, 1)
	w.do(failed(w.assign(0, 1), NextDead))
	wantStates(w, "stopping", Dead, Assigned, Cancelled, Cancelled)
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "revived", Pending, Assigned, Pending, Blocked)
	w.do(failed(live, NextRetry))
	wantStates(w, "retried", Pending, Scheduled, Pending, Blocked)
	w.do(failed(w.assign(0, 1), NextDead))
	wantStates(w, "stopped again", Dead, Cancelled, Cancelled, Cancelled)
	if j, _ := w.s.Job(1); j.State != JobFailed || j.Error != "task t0 dead: exit 1" {
		t.Errorf("got job %+v", j)
	}
}

func TestACancelledJobIsRevivedCompletely(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(diamond())
	h := w.assign(0, 1)
	w.do(&CancelJob{Job: 1, Reason: "not needed"}).do(&Revive{Job: 1})
	wantStates(w, "revived", Pending, Blocked, Blocked, Blocked)
	refused(t, w, "the attempt that was live at the cancel", StaleAttempt, complete(h))
	for i := range uint32(4) {
		if got := w.s.Result(ref(1, i)).Error; got != "" {
			t.Errorf("revived task %d: got error %q", i, got)
		}
		w.do(complete(w.assign(i, 1)))
	}
	if j, _ := w.s.Job(1); j.State != JobCompleted {
		t.Errorf("got job state %v", j.State)
	}
}

func TestAJobThatNeverStartedIsPendingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(diamond())
	w.do(&FailJob{Job: 1, Error: "deadline passed"}).do(&Revive{Job: 1, Tasks: []uint32{0}})
	if j, _ := w.s.Job(1); j.State != JobPending || j.Error != "" {
		t.Errorf("got job %+v", j)
	}
	wantStates(w, "revived", Pending, Blocked, Blocked, Blocked)
}

// A started job is running, whatever the clock of its first leader was.
func TestARevivedJobKeepsRunning(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{0, -5} {
		w := newWorld(t).do(worker(1))
		w.submit(going(plan(nil, nil)))
		held := []AssignItem{AssignItem(hold(1, 0, 1, 1)), AssignItem(hold(1, 1, 1, 1))}
		ops := []Op{&Assign{Items: held}, failed(HeldAttempt(held[0]), NextDead), &Revive{Job: 1}}
		if r := w.s.Apply(Entry{NowMS: now, Ops: ops}, nil); r != Accepted {
			t.Fatal(r)
		}
		if err := w.s.Check(); err != nil {
			t.Errorf("now %d: %v", now, err)
		}
		if j, _ := w.s.Job(1); j.State != JobRunning {
			t.Errorf("at %d: got job state %v", now, j.State)
		}
	}
}

func TestUserCancelledTasksAreRevivedOnlyByName(t *testing.T) {
	t.Parallel()
	made := func() *world {
		w := newWorld(t).do(worker(1))
		w.submit(going(plan(nil, nil, []uint32{1}, []uint32{0})))
		return w.do(&CancelTask{Task: ref(1, 1)}).do(failed(w.assign(0, 1), NextDead))
	}
	w := made().do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "another named", Pending, Cancelled, Cancelled, Blocked)
	refused(t, w, "a dependent of it named", WrongState, &Revive{Job: 1, Tasks: []uint32{2}})
	w = made().do(&Revive{Job: 1, Tasks: []uint32{1}})
	wantStates(w, "itself named", Dead, Pending, Blocked, Cancelled)
	w = made().do(&Revive{Job: 1})
	wantStates(w, "all requested", Pending, Pending, Blocked, Blocked)
	w.do(&CancelJob{Job: 1}).do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "after another revival", Pending, Pending, Blocked, Blocked)
}

func TestAnInvalidReviveOrPurgeChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, nil)))
	w.do(failed(w.assign(0, 1), NextDead)).do(failed(w.assign(1, 1), NextFailed))
	for what, c := range map[string]struct {
		job   JobID
		tasks []uint32
		want  Reason
	}{
		"unknown job":  {2, nil, JobNotFound},
		"unknown task": {1, []uint32{0, 3}, TaskNotFound},
		"descending":   {1, []uint32{1, 0}, Malformed},
		"twice":        {1, []uint32{0, 0}, Malformed},
		"still open":   {1, []uint32{0, 2}, WrongState},
	} {
		refused(t, w, what+": revive", c.want, &Revive{Job: c.job, Tasks: c.tasks})
		if what != "descending" {
			refused(t, w, what+": purge", c.want, &Purge{Job: c.job, Tasks: c.tasks})
		}
	}
	refused(t, w, "purging a task that is not dead", WrongState, &Purge{Job: 1, Tasks: []uint32{0, 1}})
	w.do(&Purge{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "purged", Failed, Failed, Pending)
	refused(t, w, "purging again", WrongState, &Purge{Job: 1})
	if got := w.s.History(ref(1, 0)); len(got) != 1 {
		t.Errorf("history of a purged task: got %v", got)
	}
	w.do(&BeginUpload{ID: 2, Key: "upload", Header: diamond().header(), Total: 4}, &AddChunk{Job: 2, Chunk: diamond().chunk(0, 4)})
	refused(t, w, "reviving an upload", JobNotFound, &Revive{Job: 2})
	refused(t, w, "purging an upload", JobNotFound, &Purge{Job: 2})
}

// All revived tasks can end, and if they complete, no requested task is left over.
func TestEveryTaskOfARevivedJobCanEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		choose := drawn(t)
		g, s := newGenerator(choose), New()
		g.alone = true
		s.Apply(Entry{Ops: []Op{worker(1), worker(2)}}, nil)
		for n := range 30 + choose(60) {
			s.Apply(Entry{NowMS: int64(n), Ops: g.ops(s)}, nil)
		}
		s.Apply(Entry{NowMS: 999, Ops: []Op{&RegisterWorker{ID: s.NextWorker(), Name: "last", Incarnation: "i"}}}, nil)
		for j := range s.Jobs(0) {
			before := j
			unfinished := before.Failed() + before.Counts[Cancelled] - skipped(s, j.ID)
			whole := s.Apply(Entry{NowMS: 1000, Ops: []Op{&Revive{Job: j.ID}}}, nil)
			if (whole == Accepted) != (unfinished > 0 && !before.CleaningUp()) {
				t.Fatalf("job %d with %v: revived: got %v", j.ID, before.Counts, whole)
			}
			endWell(t, s, j.ID)
			if before.CleaningUp() && unfinished > 0 { // only now it can be revived
				if r := s.Apply(Entry{NowMS: 1000, Ops: []Op{&Revive{Job: j.ID}}}, nil); r != Accepted {
					t.Fatalf("job %d, cleaned up: revived: got %v", j.ID, r)
				}
				endWell(t, s, j.ID)
			}
			if after, _ := s.Job(j.ID); after.State != JobCompleted || after.Counts[Completed]+skipped(s, j.ID) != after.Total {
				t.Fatalf("job %d: was %v, is %v: %v", j.ID, before.State, after.State, after.Counts)
			}
		}
	})
}

// skipped counts the tasks of a job that were not needed.
func skipped(s *State, id JobID) (n uint32) {
	j := s.jobs.get(id)
	for i := range j.total {
		if r := j.records.at(i); r.state == Cancelled && r.cause == causeSkipped {
			n++
		}
	}
	return n
}

// endWell completes all open tasks of a job.
func endWell(t *rapid.T, s *State, id JobID) {
	w := s.WorkerByName("last").ID
	for {
		var ops []Op
		j, _ := s.Job(id)
		for i := range j.Total {
			v, _ := s.Task(ref(id, i))
			h := hold(id, i, v.Attempt+1, w)
			switch v.State {
			case Assigned:
				ops = append(ops, complete(hold(id, i, v.Attempt, v.Worker)))
			case Pending:
				ops = append(ops, &Assign{Items: []AssignItem{AssignItem(h)}}, complete(h))
			case Scheduled:
				ops = append(ops, &Due{Items: []AttemptRef{att(id, i, v.Attempt)}})
			}
		}
		if len(ops) == 0 {
			return
		}
		if r := s.Apply(Entry{NowMS: 2000, Ops: ops}, nil); r != Accepted {
			t.Fatalf("job %d: %v", id, r)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// The reason of a task that stays cancelled names a task that failed, not one that
// was revived.
func TestATaskThatStaysCancelledNamesAFailedDependency(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, []uint32{0, 1}, []uint32{2})))
	w.do(failed(w.assign(0, 1), NextDead)).do(failed(w.assign(1, 1), NextDead))
	want := func(what string, texts ...string) {
		t.Helper()
		for i, text := range texts {
			if got := w.s.Result(ref(1, uint32(i))).Error; got != text {
				t.Errorf("%s: task %d: got error %q, want %q", what, i, got, text)
			}
		}
	}
	want("failed", "exit 1", "exit 1", "dependency t0 failed", "dependency t2 failed")
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "revived one", Pending, Dead, Cancelled, Cancelled)
	want("revived one", "exit 1", "exit 1", "dependency t1 failed", "dependency t2 failed")
	size := w.s.jobs.get(1).notes.size
	w.do(failed(w.assign(0, 1), NextDead)).do(&Revive{Job: 1, Tasks: []uint32{0}})
	want("revived again", "exit 1", "exit 1", "dependency t1 failed", "dependency t2 failed")
	if grown := w.s.jobs.get(1).notes.size - size; grown > 64 {
		t.Errorf("unchanged reasons were written again: %d bytes more", grown)
	}
	sameState(t, "restored", restored(t, snapshotOf(t, w.s)), w.s)
}

// A task that was cancelled with its job, and is not revived with a part of it, is
// no longer cancelled because of the job.
func TestATaskThatStaysCancelledInAStoppedJobNamesItsDependency(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil, []uint32{1}))
	live := w.assign(1, 1)
	w.do(failed(w.assign(0, 1), NextDead)).do(failed(live, NextDead))
	if got := w.s.Result(ref(1, 2)).Error; got != "job stopped: task t0 failed" {
		t.Errorf("got error %q", got)
	}
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	if got := w.s.Result(ref(1, 2)).Error; got != "dependency t1 failed" {
		t.Errorf("got error %q", got)
	}
}

func TestUserCancellationsSurviveARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, []uint32{1})))
	w.do(&CancelTask{Task: ref(1, 1)}).do(failed(w.assign(0, 1), NextDead))
	w.s = restored(t, snapshotOf(t, w.s))
	refused(t, w, "a dependent of a task cancelled by a user", WrongState, &Revive{Job: 1, Tasks: []uint32{2}})
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	wantStates(w, "another revived", Pending, Cancelled, Cancelled)
}

// waitedTasks are those that were ready when they ended, and were not reported as revived since.
type waitedTasks map[TaskRef]bool

// check checks that such a task is reported before it is ready again. before has the views of the
// entry before.
func (w waitedTasks) check(t interface{ Fatalf(string, ...any) }, s *State, before promises, fx *Effects) {
	for _, run := range fx.RevivedTasks {
		for i := range run.N {
			delete(w, ref(run.Job, run.Index+i))
		}
	}
	for at, was := range before {
		now, ok := s.Task(at)
		switch {
		case !ok || now.Attempt != was.Attempt:
			delete(w, at)
		case was.State == Pending && now.State.Terminal():
			w[at] = true
		case now.State == Pending && w[at]:
			t.Fatalf("task %v ended while it was ready, and is ready again: it is not among the revived %v", at, fx.RevivedTasks)
		}
	}
}

// A task that its last attempt ended was assigned, so that nothing is left of it in the order of
// ready tasks: a retry of a job with a million dead letters costs nothing more for each of them.
func TestRevivedTasksAreThoseThatTheirLastAttemptsDidNotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, nil, nil, nil, []uint32{0}, nil)))
	w.do(failed(w.assign(0, 1), NextDead)).do(failed(w.assign(1, 1), NextFailed)).do(failed(w.assign(2, 1), NextDead))
	w.do(&Purge{Job: 1, Tasks: []uint32{2}}, &FailTask{Task: ref(1, 3), Error: "queue timeout"}, &CancelTask{Task: ref(1, 4)})
	again := w.assign(6, 1)
	w.do(failed(again, NextRetry)).do(&Due{Items: []AttemptRef{again.AttemptRef}}).do(&CancelTask{Task: ref(1, 6), Reason: "wait"})
	wantStates(w, "ended", Dead, Failed, Failed, Failed, Cancelled, Cancelled, Cancelled)
	var fx Effects
	if r := w.s.Apply(Entry{NowMS: w.now, Ops: []Op{&Revive{Job: 1}}}, &fx); r != Accepted {
		t.Fatal(r)
	}
	wantStates(w, "revived", Pending, Pending, Pending, Pending, Pending, Blocked, Pending)
	if want := []TaskRun{{ref(1, 3), 4}}; !slices.Equal(fx.RevivedTasks, want) {
		t.Errorf("the effects have the revived tasks %v, want %v", fx.RevivedTasks, want)
	}
}
