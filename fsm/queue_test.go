package fsm

import (
	"bytes"
	"slices"
	"testing"
)

// withQueueETL returns a state at the level of queues that has the queue etl.
func withQueueETL(t *testing.T) *State {
	t.Helper()
	s := New()
	mustApply(t, s, &SetLevel{Level: queueLevel}, &SetQueue{Name: "etl", QueueSettings: QueueSettings{Weight: 3}, AtMS: 1})
	return s
}

func mustApply(t *testing.T, s *State, ops ...Op) {
	t.Helper()
	for _, op := range ops {
		if r := s.Apply(Entry{NowMS: 1, Ops: []Op{op}}, nil); r != Accepted {
			t.Fatalf("%T: %v", op, r)
		}
	}
}

func apply(s *State, op Op) Reason { return s.Apply(Entry{NowMS: 1, Ops: []Op{op}}, nil) }

func TestAJobThatNamesAnUnknownQueueIsRejected(t *testing.T) {
	t.Parallel()
	s := withQueueETL(t)
	p := plan(nil)
	for id, name := range []string{"etl", "", "default"} {
		p.queue = name
		mustApply(t, s, p.submit(JobID(id+1), name+"key", 1)...)
	}
	p.queue = "elt"
	ops := p.submit(4, "unknown", 1)
	seal := ops[len(ops)-1]
	mustApply(t, s, ops[:len(ops)-1]...)
	if r := apply(s, seal); r != QueueNotFound {
		t.Errorf("got %v, want %v", r, QueueNotFound)
	}
}

// Builds of lower levels accept the name, and replicas must agree.
func TestBelowTheLevelOfQueuesAnyNameIsAccepted(t *testing.T) {
	t.Parallel()
	s, p := New(), plan(nil)
	p.queue = "elt"
	mustApply(t, s, p.submit(1, "key", 1)...)
}

func TestAQueueIsDeletedOnlyWhenNoOpenJobNamesIt(t *testing.T) {
	t.Parallel()
	s := withQueueETL(t)
	p := plan(nil)
	p.queue = "etl"
	mustApply(t, s, p.submit(1, "key", 1)...)
	if r := apply(s, &DeleteQueue{Name: "etl"}); r != WrongState {
		t.Errorf("with an open job: got %v, want %v", r, WrongState)
	}
	mustApply(t, s, &CancelJob{Job: 1})
	if r := apply(s, &DeleteQueue{Name: "etl", IfVersion: 2}); r != VersionMismatch {
		t.Errorf("with another version: got %v, want %v", r, VersionMismatch)
	}
	mustApply(t, s, &DeleteQueue{Name: "etl", IfVersion: 1})
	if r := apply(s, &DeleteQueue{Name: "etl"}); r != QueueNotFound {
		t.Errorf("again: got %v, want %v", r, QueueNotFound)
	}
}

func TestTheDefaultQueueIsResetWhileJobsAreOpen(t *testing.T) {
	t.Parallel()
	s := withQueueETL(t)
	mustApply(t, s, plan(nil).submit(1, "key", 1)...)
	mustApply(t, s, &SetQueue{Name: DefaultQueue, QueueSettings: QueueSettings{Weight: 2}, AtMS: 1}, &DeleteQueue{Name: DefaultQueue})
}

func TestSettingAQueueAgainChangesNothing(t *testing.T) {
	t.Parallel()
	s := withQueueETL(t)
	before := s.Queue("etl")
	mustApply(t, s, &SetQueue{Name: "etl", QueueSettings: QueueSettings{Weight: 3}, AtMS: 9, IfVersion: 7, By: "bob"})
	if q := s.Queue("etl"); q != before {
		t.Errorf("got version %d by %q", q.Version, q.By)
	}
	mustApply(t, s, &SetQueue{Name: "etl", QueueSettings: QueueSettings{Weight: 4}, AtMS: 9, IfVersion: 1})
	if q := s.Queue("etl"); q.Version != 2 || q.Weight != 4 || q.CreatedMS != 1 || q.ChangedMS != 9 {
		t.Errorf("got %+v", q)
	}
}

func TestTheThousandAndFirstQueueIsRejected(t *testing.T) {
	t.Parallel()
	s := New()
	set := func(i int) Op {
		return &SetQueue{Name: "q" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10)), QueueSettings: QueueSettings{Weight: 1}, AtMS: 1}
	}
	for i := range maxQueues {
		mustApply(t, s, set(i))
	}
	if r := apply(s, set(maxQueues)); r != LimitExceeded {
		t.Errorf("got %v, want %v", r, LimitExceeded)
	}
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := ReadSnapshot(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(slices.Collect(restored.Queues())); got != maxQueues {
		t.Errorf("restored %d queues, want %d", got, maxQueues)
	}
}

func TestAMovedJobNamesItsNewQueueWhereverItIsRead(t *testing.T) {
	t.Parallel()
	s := withQueueETL(t)
	mustApply(t, s, plan(nil).submit(1, "key", 1)...)
	var fx Effects
	for _, to := range []string{"etl", "default", "etl"} {
		fx.Reset()
		if r := s.Apply(Entry{NowMS: 1, Ops: []Op{&MoveJob{Job: 1, Queue: to}}}, &fx); r != Accepted {
			t.Fatal(r)
		}
		if !slices.Equal(fx.MovedJobs, []JobID{1}) || len(fx.Reordered)+len(fx.ReorderedJobs) > 0 {
			t.Errorf("got moved jobs %v, and %v and %v reordered", fx.MovedJobs, fx.Reordered, fx.ReorderedJobs)
		}
		if j, _ := s.Job(1); QueueOf(j.Header) != to {
			t.Errorf("got queue %s, want %s", QueueOf(j.Header), to)
		}
	}
	before, _ := s.Job(1)
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := ReadSnapshot(&b)
	if err != nil {
		t.Fatal(err)
	}
	if j, _ := restored.Job(1); QueueOf(j.Header) != "etl" || j.Version != before.Version || j.Digest != before.Digest {
		t.Errorf("restored: got queue %s, version %d", QueueOf(j.Header), j.Version)
	}
	if r := apply(s, &MoveJob{Job: 1, Queue: "ml"}); r != QueueNotFound {
		t.Errorf("unknown queue: got %v, want %v", r, QueueNotFound)
	}
	mustApply(t, s, &CancelJob{Job: 1})
	if r := apply(s, &MoveJob{Job: 1, Queue: "default"}); r != AlreadyEnded {
		t.Errorf("ended: got %v, want %v", r, AlreadyEnded)
	}
}
