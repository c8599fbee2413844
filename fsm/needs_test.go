package fsm

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	needEnded  = dtaskv1.Condition_CONDITION_ENDED
	needFailed = dtaskv1.Condition_CONDITION_FAILED
)

// need is a job that must complete, or end with a condition.
func need(id JobID, when ...dtaskv1.Condition) *dtaskv1.JobNeed {
	n := &dtaskv1.JobNeed{Job: uint64(id)}
	if len(when) > 0 {
		n.Condition = when[0]
	}
	return n
}

// needing is a plan of a job that needs others.
func needing(p *jobPlan, needs ...*dtaskv1.JobNeed) *jobPlan {
	p.needs = needs
	return p
}

// finish ends job 1, which has one task.
func finish(w *world, state JobState) {
	w.t.Helper()
	switch state {
	case JobCompleted:
		w.do(complete(w.assign(0, 1)))
	case JobFailed:
		w.do(failed(w.assign(0, 1), NextDead))
	default:
		w.do(&CancelJob{Job: 1, Reason: "enough"})
	}
}

func TestAJobStartsWhenTheJobThatItNeedsHasEndedAsRequired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when dtaskv1.Condition
		end  JobState
		want JobState
		why  string // of the job
		task string
	}{
		{0, JobCompleted, JobPending, "", ""},
		{0, JobFailed, JobFailed, "needed job 1 failed", "needed job 1 failed"},
		{0, JobCancelled, JobFailed, "needed job 1 was cancelled", "needed job 1 was cancelled"},
		{needEnded, JobCompleted, JobPending, "", ""},
		{needEnded, JobFailed, JobPending, "", ""},
		{needFailed, JobFailed, JobPending, "", ""},
		{needFailed, JobCancelled, JobPending, "", ""},
		{needFailed, JobCompleted, JobCompleted, "skipped: needed job 1 completed", "skipped: needed job 1 completed"},
	} {
		for _, early := range []bool{false, true} { // the needed job ends before the other one is submitted
			w := newWorld(t).do(worker(1))
			w.submit(plan(nil))
			if early {
				finish(w, c.end)
			}
			w.submit(needing(diamond(), need(1, c.when)))
			if !early {
				if j, _ := w.s.Job(2); !j.Waiting || w.state(2, 0) != Blocked || j.State != JobPending {
					t.Fatalf("%v: waiting: %+v", c, j)
				}
				finish(w, c.end)
			}
			j, _ := w.s.Job(2)
			if j.State != c.want || j.Waiting || j.Error != c.why || !slices.Equal(j.NeedEnds, []JobState{c.end}) {
				t.Errorf("%v, early %t: is %v (%s), waiting %t, knows %v", c, early, j.State, j.Error, j.Waiting, j.NeedEnds)
			}
			first, why := w.state(2, 0), w.s.Result(ref(2, 0)).Error
			if (first == Pending) != (c.want == JobPending) || why != c.task || w.state(2, 3) == Pending {
				t.Errorf("%v, early %t: first task is %v (%s)", c, early, first, why)
			}
		}
	}
}

func TestAJobWaitsForAllJobsThatItNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.submit(plan(nil))
	w.submit(needing(plan(nil), need(1), need(2, needEnded)))
	finish(w, JobCompleted)
	if w.state(3, 0) != Blocked {
		t.Fatalf("with one job open, the task is %v", w.state(3, 0))
	}
	w.do(&CancelJob{Job: 2})
	if w.state(3, 0) != Pending {
		t.Errorf("after both have ended, the task is %v", w.state(3, 0))
	}
}

func TestAJobThatNeverStartedRunsNoCleanupTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	p := needing(plan(nil), need(1))
	p.tasks = append(p.tasks, taskPlan{name: "cleanup", policy: 2})
	w.submit(p)
	finish(w, JobFailed)
	if j, _ := w.s.Job(2); j.State != JobFailed || j.Counts[Cancelled] != 2 {
		t.Errorf("got %v with %v", j.State, j.Counts)
	}
}

// A chain of jobs may be long: the end of the first one reaches the last without
// recursion.
func TestTheEndOfAJobReachesAChainOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	const n = 300
	for id := JobID(2); id <= n; id++ {
		w.submit(needing(plan(nil), need(id-1)))
	}
	w.submit(needing(plan(nil), need(n, needFailed)))
	finish(w, JobFailed)
	last, _ := w.s.Job(n)
	if handler := w.state(n+1, 0); last.State != JobFailed || handler != Pending {
		t.Errorf("the last job is %v (%s), its handler %v", last.State, last.Error, handler)
	}
}

func TestAnUnknownNeedIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.do(&BeginUpload{ID: 2, Key: "open", Header: plan(nil).header(), Total: 1})
	for what, c := range map[string]struct {
		need *dtaskv1.JobNeed
		want Reason
	}{
		"itself":            {need(3), Malformed},
		"a later job":       {need(9), Malformed},
		"no job":            {need(0), Malformed},
		"tolerated":         {need(1, dtaskv1.Condition_CONDITION_TOLERATED), Malformed},
		"a future one":      {need(1, 77), Malformed},
		"ended as pending":  {&dtaskv1.JobNeed{Job: 1, EndedAs: dtaskv1.JobState_JOB_STATE_PENDING}, Malformed},
		"an upload":         {need(2), NeedNotFound},
		"one that was seen": {&dtaskv1.JobNeed{Job: 2, EndedAs: dtaskv1.JobState_JOB_STATE_COMPLETED}, Accepted},
	} {
		f := &world{t: t, s: w.s.Fork(), now: w.now}
		if got := f.try(needing(plan(nil), c.need).submit(3, "k", 3)...); got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

func TestARetriedJobAsksAgainWhatItNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.submit(needing(diamond(), need(1)))
	finish(w, JobFailed)
	if r := w.try(&Revive{Job: 2}); r != NeedUnmet {
		t.Fatalf("retried while job 1 is failed: %v", r)
	}
	w.do(&Revive{Job: 1}).do(&Revive{Job: 2})
	if j, _ := w.s.Job(2); !j.Waiting || w.state(2, 0) != Blocked {
		t.Fatalf("both retried: waiting %t, first task %v", j.Waiting, w.state(2, 0))
	}
	finish(w, JobCompleted)
	if w.state(2, 0) != Pending {
		t.Errorf("job 1 has completed: the first task is %v", w.state(2, 0))
	}
	// What once held is not asked again.
	w.do(&CancelJob{Job: 2})
	w.do(&Archive{Items: []JobID{1}}).do(&Revive{Job: 2})
	if w.state(2, 0) != Pending {
		t.Errorf("retried after job 1 left: the first task is %v", w.state(2, 0))
	}
}

// The end of a needed job is known to a job that was cancelled before, so that it
// can be retried when the needed job is no longer in the state.
func TestACancelledJobLearnsHowTheNeededJobEnded(t *testing.T) {
	t.Parallel()
	for _, end := range []JobState{JobCompleted, JobFailed} {
		w := newWorld(t).do(worker(1))
		w.submit(plan(nil))
		w.submit(needing(plan(nil), need(1)))
		w.do(&CancelJob{Job: 2, Reason: "later"})
		finish(w, end)
		w.s = restored(t, snapshotOf(t, w.s))
		w.do(&Archive{Items: []JobID{1}})
		if r := w.try(&Revive{Job: 2}); (r == Accepted) != (end == JobCompleted) {
			t.Errorf("job 1 %v: retrying job 2: %v", end, r)
		}
	}
}

func TestAStartTimeCountsFromTheEndOfTheNeededJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.submit(needing(plan(nil, nil, []uint32{0}), need(1)))
	w.do(&Update{Job: 2, Task: 1, Set: SetNotBefore, NotBeforeMS: 5000, Precondition: Precondition{Key: "u", KeyExpires: 9}})
	wantState := func(i uint32, want TaskState) {
		t.Helper()
		if got := w.state(2, i); got != want {
			t.Errorf("task %d is %v, want %v", i, got, want)
		}
	}
	wantState(1, Blocked)
	finish(w, JobCompleted)
	wantState(0, Pending)
	wantState(1, Scheduled)
	wantState(2, Blocked)
}

// Whatever happens, a job that waits for others starts or ends with the last of
// them, on every replica, restored or not.
func TestNoJobWaitsForever(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, s := newGenerator(drawn(t)), New()
		s.Apply(Entry{Ops: []Op{worker(1), worker(2)}}, nil)
		for n := range 20 + g.choose(60) {
			s.Apply(Entry{NowMS: int64(n), Ops: g.ops(s)}, nil)
		}
		var snapshot strings.Builder
		if err := s.WriteSnapshot(&snapshot); err != nil {
			t.Fatal(err)
		}
		other, err := readLaterSnapshot([]byte(snapshot.String()))
		if err != nil {
			t.Fatal(err)
		}
		for n := range g.choose(30) {
			ops := g.ops(s)
			for _, replica := range []*State{s, other} {
				replica.Apply(Entry{NowMS: int64(500 + n), Ops: ops}, nil)
			}
		}
		for id := range s.NextJob() { // a job needs only earlier ones
			op := &CancelJob{Job: id, IncludeCleanup: g.choose.one(2)}
			for _, replica := range []*State{s, other} {
				replica.Apply(Entry{NowMS: 999, Ops: []Op{op}}, nil)
			}
			if j, ok := s.Job(id); ok && j.Waiting {
				t.Fatalf("job %d waits although all earlier jobs have ended", id)
			}
		}
		if s.Digest() != other.Digest() {
			t.Fatal("a restored replica has another digest")
		}
	})
}

// What a replica knows of the jobs that need another one depends on whether it was
// restored. The digest must not.
func TestARestoredReplicaAgreesAboutNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.submit(needing(plan(nil), need(1), need(1, needFailed)))
	w.submit(needing(plan(nil), need(1)))
	finish(w, JobFailed)
	w.do(&Revive{Job: 1})
	other := &world{t: t, s: restored(t, snapshotOf(t, w.s)), now: w.now}
	for _, x := range []*world{w, other} {
		finish(x, JobFailed)
		x.do(&Revive{Job: 1})
		finish(x, JobCompleted)
		x.do(&Revive{Job: 3}).do(&CancelJob{Job: 3})
	}
	sameState(t, "restored", other.s, w.s)
}

func TestAJobWaitsAgainAfterItsCleanupTasksRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	p := needing(plan(nil), need(1))
	p.tasks = append(p.tasks, taskPlan{name: "cleanup", policy: 2})
	w.submit(p)
	w.do(&CancelJob{Job: 2, Reason: "later"})
	cleanup := hold(2, 1, 1, 1)
	w.do(&Assign{Items: []AssignItem{AssignItem(cleanup)}}).do(complete(cleanup)).do(&Revive{Job: 2})
	if j, _ := w.s.Job(2); !j.Waiting || w.state(2, 0) != Blocked {
		t.Errorf("waiting %t, task %v", j.Waiting, w.state(2, 0))
	}
}
