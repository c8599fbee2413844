package fsm

import (
	"bytes"
	"testing"
)

// gatedAt is a plan of a job with times.
func gatedAt(p *jobPlan, t jobTimes) *jobPlan {
	p.times = t
	return p
}

// submitGated returns the operations that store a job with times.
func submitGated(id JobID, key string, p *jobPlan) []Op {
	ops := p.submit(id, key, 1)
	seal := SealGated(*ops[len(ops)-1].(*SealUpload))
	return append(ops[:len(ops)-1], &seal)
}

// gatedState returns a state with a worker and jobs with times, submitted at 1000.
func gatedState(t *testing.T, plans ...*jobPlan) *State {
	t.Helper()
	s := New()
	s.level.current = 3
	ops := []Op{worker(1)}
	for i, p := range plans {
		ops = append(ops, submitGated(JobID(i+1), string(rune('a'+i)), p)...)
	}
	if r := s.Apply(Entry{NowMS: 1000, Ops: ops}, nil); r != Accepted {
		t.Fatal(r)
	}
	return s
}

func TestAGateOpensOnceAndNotEarly(t *testing.T) {
	t.Parallel()
	s := gatedState(t,
		gatedAt(diamond(), jobTimes{startAt: 5000}), gatedAt(diamond(), jobTimes{startAfter: 4000}),
		gatedAt(diamond(), jobTimes{startAt: 3000, startAfter: 4000}))
	for i, x := range []struct {
		now  int64
		job  JobID
		want Reason
	}{
		{4999, 1, WrongState},
		{4999, 2, WrongState},
		{4999, 3, WrongState},
		{5000, 1, Accepted},
		{5000, 2, Accepted},
		{5000, 3, Accepted},
		{6000, 1, WrongState},
		{6000, 9, JobNotFound},
	} {
		fx := new(Effects)
		if got := s.Apply(Entry{NowMS: x.now, Ops: []Op{&OpenGate{Job: x.job}}}, fx); got != x.want {
			t.Errorf("operation %d: got %v, want %v", i, got, x.want)
		}
		if (len(fx.Ready) == 1) != (x.want == Accepted) {
			t.Errorf("operation %d: tasks became ready: %v", i, fx.Ready)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAJobThatNeedsOthersIsAtItsGateAfterThem(t *testing.T) {
	t.Parallel()
	s := gatedState(t, gatedAt(plan(nil), jobTimes{startAt: 2000}), gatedAt(needing(plan(nil), need(1)), jobTimes{startAt: 3000}))
	apply := func(op Op) (Reason, *Effects) {
		fx := new(Effects)
		return s.Apply(Entry{NowMS: 9000, Ops: []Op{op}}, fx), fx
	}
	if r, _ := apply(&OpenGate{Job: 2}); r != WrongState {
		t.Errorf("before the job that it needs has ended: got %v", r)
	}
	if r, fx := apply(&CancelJob{Job: 1, Reason: "not needed"}); r != Accepted || len(fx.EndedJobs) != 2 {
		t.Errorf("got %v, ended jobs %v, want both", r, fx.EndedJobs)
	}
	if r, fx := apply(&Revive{Job: 1}); r != Accepted || len(fx.Gated) != 1 {
		t.Errorf("a retried job is not at its gate: %v, %v", r, fx.Gated)
	}
}

func TestAJobExpiresOnlyBeforeItHasStarted(t *testing.T) {
	t.Parallel()
	times := jobTimes{startAfter: 1000, expires: 3000}
	s := gatedState(t, gatedAt(plan(nil), times), gatedAt(plan(nil), times), gatedAt(plan(nil), jobTimes{startAt: 1}))
	for i, x := range []struct {
		now  int64
		op   Op
		want Reason
	}{
		{2000, &OpenGate{Job: 1}, Accepted},
		{4999, &ExpireJob{Job: 2}, WrongState},
		{5000, &ExpireJob{Job: 2, Reason: "expired"}, Accepted},
		{5000, &ExpireJob{Job: 2}, AlreadyEnded},
		{5000, &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 1, 1))}}, Accepted},
		{5000, &ExpireJob{Job: 1}, WrongState},
		{5000, &ExpireJob{Job: 3}, WrongState},
		{5000, &ExpireJob{Job: 9}, JobNotFound},
		{6000, &Revive{Job: 2}, Accepted},
		{8999, &ExpireJob{Job: 2}, WrongState},
		{9000, &ExpireJob{Job: 2, Reason: "expired"}, Accepted},
	} {
		if got := s.Apply(Entry{NowMS: x.now, Ops: []Op{x.op}}, nil); got != x.want {
			t.Errorf("operation %d %+v: got %v, want %v", i, x.op, got, x.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if j, _ := s.Job(2); j.State != JobCancelled || j.Error != "expired" {
		t.Errorf("the job is %v (%s)", j.State, j.Error)
	}
}

// Earlier builds ignore the times in a header. A replica that replays their entries must
// agree with them.
func TestAnEntryOfAnEarlierBuildStartsAJobAtOnce(t *testing.T) {
	t.Parallel()
	s := New()
	fx := new(Effects)
	if r := s.Apply(Entry{NowMS: 1000, Ops: gatedAt(plan(nil), jobTimes{startAt: 9000}).submit(1, "a", 1)}, fx); r != Accepted || len(fx.Ready) != 1 {
		t.Errorf("got %v, ready tasks %v", r, fx.Ready)
	}
	if j, _ := s.Job(1); j.Gated {
		t.Error("the job has a closed gate")
	}
}

func TestGatesAreInSnapshots(t *testing.T) {
	t.Parallel()
	s := gatedState(t, gatedAt(plan(nil), jobTimes{startAt: 2000}), gatedAt(needing(plan(nil), need(1)), jobTimes{startAt: 3000}), gatedAt(diamond(), jobTimes{startAfter: 1}))
	if r := s.Apply(Entry{NowMS: 2000, Ops: []Op{&OpenGate{Job: 1}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	data := snapshotOf(t, s)
	again := restored(t, data)
	if !bytes.Equal(snapshotOf(t, again), data) || again.Digest() != s.Digest() {
		t.Error("writing the restored state changes it")
	}
	for _, x := range []*State{s, again} {
		if r := x.Apply(Entry{NowMS: 5000, Ops: []Op{&OpenGate{Job: 1}}}, nil); r != WrongState {
			t.Errorf("the gate of job 1 opens again: %v", r)
		}
		if r := x.Apply(Entry{NowMS: 5000, Ops: []Op{&OpenGate{Job: 3}}}, nil); r != Accepted {
			t.Errorf("the gate of job 3 does not open: %v", r)
		}
	}
	if again.Digest() != s.Digest() {
		t.Error("the restored state differs")
	}
}

// A start time that was set and removed leaves a job as it was submitted, also where the tasks
// that its gate readies are added to the digest.
func TestARemovedStartTimeLeavesNothingThatASnapshotLacks(t *testing.T) {
	t.Parallel()
	s := gatedState(t, gatedAt(diamond(), jobTimes{startAt: 5000}))
	for _, at := range []int64{6000, 0} {
		if r := s.Apply(Entry{NowMS: 1000, Ops: []Op{&Update{Job: 1, Task: 0, Set: SetNotBefore, NotBeforeMS: at, Precondition: Precondition{KeyExpires: 9000}}}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	again := restored(t, snapshotOf(t, s))
	for _, x := range []*State{s, again} {
		if r := x.Apply(Entry{NowMS: 5000, Ops: []Op{&OpenGate{Job: 1}}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	if s.Digest() != again.Digest() {
		t.Error("the digests differ after the gate was opened")
	}
}

func TestTimesOutOfRangeAreMalformed(t *testing.T) {
	t.Parallel()
	for _, times := range []jobTimes{{startAt: -1}, {startAfter: 1 << 61}, {startAt: 1, expires: -1}, {}} {
		s := New()
		s.level.current = 3
		if r := s.Apply(Entry{NowMS: 1000, Ops: submitGated(1, "a", gatedAt(plan(nil), times))}, nil); r != Malformed {
			t.Errorf("%+v: got %v, want malformed", times, r)
		}
	}
}
