package sequencer_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
)

// What holds a slot has run since it was assigned, for an old leader and for a new one.
func TestAPendingTaskHasAnEstimate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 3})
		w := attachWorker(t, s, "w1", "a", 1, keep)
		var has []fsm.AttemptRef
		w.await("its attempt", func() bool { has = slices.Clone(w.held); return len(has) == 1 })
		c.await("the task is assigned", func() bool { return c.task(id, 0).State == fsm.Assigned })
		<-time.After(4 * time.Second)
		samples := slices.Repeat([]time.Duration{10 * time.Second}, 5)
		of := func(fsm.TaskRef) []time.Duration { return samples }
		about := func(got, want time.Duration) bool { return got > want-time.Second && got <= want }
		if e := mustExplain(t, s, id, 2).Estimate(of); e.Doubt != "" || !about(e.From, 16*time.Second) || !about(e.To, 16*time.Second) {
			t.Errorf("got %+v, want 16s", e)
		}
		if err := end(); err == nil {
			t.Fatal("the term ended without a reason")
		}
		s, _ = c.lead()
		attachWorker(t, s, "w1", "a", 1, keep, has...)
		if e := mustExplain(t, s, id, 1).Estimate(of); e.Doubt != "" || !about(e.From, 6*time.Second) || !about(e.To, 6*time.Second) {
			t.Errorf("of a new leader: got %+v, want 6s", e)
		}
		samples = samples[:4]
		if e := mustExplain(t, s, id, 1).Estimate(of); e.Doubt != "few_samples" || e.Task.Job != id {
			t.Errorf("from 4 samples: got %+v", e)
		}
		if mustExplain(t, s, id, 0).Estimate != nil {
			t.Error("an assigned task has an estimate")
		}
	})
}

// An attempt of a lost worker counts towards its limit until its lease ends, and explain names it.
func TestATaskBehindALeaseHasAnEstimate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "db", atMost(1))
		<-time.After(afterLeases)
		id := mustSubmit(t, s, using("k", 2, "db"))
		w := attachWorker(t, s, "w1", "a", 1, keep)
		c.await("a task is assigned", func() bool { return c.assigned(id) == 1 })
		w.fallSilent()
		s.Detach(w.id, w)
		attachWorker(t, s, "w2", "b", 1, keep)
		down := mustExplain(t, s, id, 0).MarkedDown - time.Now().UnixMilli()
		<-time.After(time.Duration(down)*time.Millisecond + time.Second)
		lease := time.Duration(mustExplain(t, s, id, 0).LeaseUntil-time.Now().UnixMilli()) * time.Millisecond
		samples := slices.Repeat([]time.Duration{10 * time.Second}, 5)
		x := mustExplain(t, s, id, 1)
		if e := x.Estimate(func(fsm.TaskRef) []time.Duration { return samples }); e.Doubt != "" || e.From < lease-time.Second || e.To > lease {
			t.Errorf("got %+v, want %v", e, lease)
		}
		if l := x.Capacity.Limits; len(l) != 1 || !slices.Equal(l[0].Holders, []fsm.TaskRef{{Job: id}}) {
			t.Errorf("got %+v, want the first task as the holder", l)
		}
	})
}

// Each cycle answers one question, and none of them is forgotten.
func TestManyQuestionsAreAnsweredOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 10})
		answered := make(chan error, 10)
		for i := range uint32(10) {
			go func() {
				_, err := s.Explain(t.Context(), fsm.TaskRef{Job: id, Index: i})
				answered <- err
			}()
		}
		for range 10 {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}
