package sequencer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// atQueueLevel raises the level of the cluster to that of queues.
func atQueueLevel(tb testing.TB, s *sequencer.Sequencer) {
	tb.Helper()
	err := s.ChangeLevel(tb.Context(), func(fsm.Level, bool) *fsm.SetLevel { return &fsm.SetLevel{Level: 3} })
	if err != nil {
		tb.Fatal(err)
	}
}

func mustSetQueue(tb testing.TB, s *sequencer.Sequencer, name string, to fsm.QueueSettings) {
	tb.Helper()
	to.Weight = max(to.Weight, 1)
	if _, err := s.SetQueue(tb.Context(), name, to, 0, "alice"); err != nil {
		tb.Fatalf("set queue %s: %v", name, err)
	}
}

// queued is a job in a queue.
func queued(key, queue string, n uint32) spec {
	return spec{key: key, n: n, header: &dtaskv1.JobHeader{Name: key, Priority: dtaskv1.Priority_PRIORITY_NORMAL, Queue: queue}}
}

func mustLoads(tb testing.TB, s *sequencer.Sequencer) map[string]sequencer.QueueLoad {
	tb.Helper()
	loads, err := s.QueueLoads(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return loads
}

func TestQueuesShareTheSlotsUnderEveryLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{Weight: 3})
		a, b := mustSubmit(t, s, queued("a", "etl", 20)), mustSubmit(t, s, queued("b", "", 20))
		attachWorker(t, s, "w1", "a", 8, keep)
		synctest.Wait()
		check := func(s *sequencer.Sequencer) {
			t.Helper()
			loads := mustLoads(t, s)
			if x, y := loads["etl"], loads["default"]; x.Running != 6 || y.Running != 2 || x.Waiting != 14 || y.Waiting != 18 {
				t.Errorf("got %+v", loads)
			}
		}
		check(s)
		if err := end(); err == nil {
			t.Fatal("the term ended without an error")
		}
		s, _ = c.lead()
		check(s)
		if c.job(a).Counts[fsm.Assigned] != 6 || c.job(b).Counts[fsm.Assigned] != 2 {
			t.Error("the state has other attempts")
		}
	})
}

func TestAPausedQueueStartsNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		q, already, err := s.PauseQueue(t.Context(), "etl", "new disk", "alice")
		if err != nil || already || q.Pause.Reason != "new disk" {
			t.Fatalf("got %+v, %v, %v", q, already, err)
		}
		if _, already, err = s.PauseQueue(t.Context(), "etl", "again", "bob"); err != nil || !already {
			t.Fatalf("again: got %v, %v", already, err)
		}
		id := mustSubmit(t, s, queued("a", "etl", 3))
		attachWorker(t, s, "w1", "a", 8, succeed)
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Pending]; n != 3 {
			t.Errorf("%d tasks wait, want 3", n)
		}
		_ = end()
		s, _ = c.lead()
		attachWorker(t, s, "w1", "a", 8, succeed)
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Pending]; n != 3 {
			t.Errorf("under the next leader: %d tasks wait, want 3", n)
		}
		mustSetQueue(t, s, "etl", fsm.QueueSettings{Weight: 2}) // it stays paused
		if _, already, err = s.ResumeQueue(t.Context(), "etl", "alice"); err != nil || already {
			t.Fatalf("resume: got %v, %v", already, err)
		}
		synctest.Wait()
		if state := c.job(id).State; state != fsm.JobCompleted {
			t.Errorf("after resuming: the job is %v", state)
		}
	})
}

func TestTheDefaultQueueIsPausedWithoutBeingSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		if _, _, err := s.PauseQueue(t.Context(), "default", "", ""); err != nil {
			t.Fatal(err)
		}
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		attachWorker(t, s, "w1", "a", 1, succeed)
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Pending]; n != 1 {
			t.Errorf("%d tasks wait, want 1", n)
		}
		if err := s.DeleteQueue(t.Context(), "default", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if state := c.job(id).State; state != fsm.JobCompleted {
			t.Errorf("after the reset: the job is %v", state)
		}
	})
}

func TestAQueueThatIsUnknownIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		reason := func(err error) fsm.Reason {
			rejected, _ := errors.AsType[*sequencer.RejectedError](err)
			if rejected == nil {
				t.Fatalf("got %v, want a rejection", err)
			}
			return rejected.Reason
		}
		named := queued("a", "etl", 1).submission()
		named.Queue = "etl"
		if _, err := s.Submit(t.Context(), named); reason(err) != fsm.AboveLevel {
			t.Errorf("at level 1: got %v", err)
		}
		atQueueLevel(t, s)
		if _, err := s.Submit(t.Context(), named); reason(err) != fsm.QueueNotFound {
			t.Errorf("submit: got %v", err)
		}
		if _, _, err := s.PauseQueue(t.Context(), "etl", "", ""); reason(err) != fsm.QueueNotFound {
			t.Errorf("pause: got %v", err)
		}
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		if _, err := s.MoveJob(t.Context(), fsm.MoveJob{Job: id, Queue: "etl"}, false); reason(err) != fsm.QueueNotFound {
			t.Errorf("move: got %v", err)
		}
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		if _, err := s.MoveJob(t.Context(), fsm.MoveJob{Job: id, Queue: "etl"}, false); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteQueue(t.Context(), "etl", 0); reason(err) != fsm.WrongState {
			t.Errorf("delete: got %v", err)
		}
	})
}

// The queue default exists without being set, with the settings that its deletion gives it.
func TestTheDefaultQueueIsResetWithoutBeingSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		if err := s.DeleteQueue(t.Context(), "default", 0); err != nil {
			t.Error(err)
		}
		wantRejected(t, "with a version", s.DeleteQueue(t.Context(), "default", 1), fsm.VersionMismatch)
		wantRejected(t, "another queue", s.DeleteQueue(t.Context(), "etl", 0), fsm.QueueNotFound)
	})
}

func TestADeletedQueueHasNoLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		attachWorker(t, s, "w1", "a", 1, succeed)
		mustSubmit(t, s, queued("a", "etl", 5))
		synctest.Wait()
		if l := mustLoads(t, s)["etl"]; l.Waits == 0 {
			t.Fatalf("got %+v, want waits", l)
		}
		if err := s.DeleteQueue(t.Context(), "etl", 0); err != nil {
			t.Fatal(err)
		}
		if l, ok := mustLoads(t, s)["etl"]; ok {
			t.Errorf("got %+v", l)
		}
	})
}

func TestAMovedJobCountsInItsNewQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{MaxRunning: 2})
		attachWorker(t, s, "w1", "a", 4, keep)
		id := mustSubmit(t, s, spec{key: "k", n: 10})
		synctest.Wait()
		if _, err := s.MoveJob(t.Context(), fsm.MoveJob{Job: id, Queue: "etl"}, false); err != nil {
			t.Fatal(err)
		}
		loads := mustLoads(t, s)
		if x, y := loads["etl"], loads["default"]; x.Running != 4 || x.Waiting != 6 || y.Running != 0 {
			t.Errorf("got %+v", loads)
		}
		attachWorker(t, s, "w2", "a", 4, keep)
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Assigned]; n != 4 {
			t.Errorf("%d tasks run above the quota of the new queue, want the 4 that ran before", n)
		}
		mustSetQueue(t, s, "etl", fsm.QueueSettings{MaxRunning: 7})
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Assigned]; n != 7 {
			t.Errorf("%d tasks run, want 7", n)
		}
	})
}

func TestTheTasksOfAQueueGoToItsWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "ml", fsm.QueueSettings{})
		hello := func(name string, labels ...fsm.Label) fsm.WorkerID {
			w := &fakeWorker{t: t, seq: s, name: name, answer: keep, next: 1, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 100)}
			got, err := s.Attach(t.Context(), sequencer.Hello{Name: name, Incarnation: "a", Slots: 2, Labels: labels}, w)
			if err != nil {
				t.Fatal(err)
			}
			return got.Worker
		}
		pool := hello("pool", fsm.Label{Key: fsm.ReservedLabel, Value: "true"}, fsm.Label{Key: "pool", Value: "ml"})
		plain := hello("plain")
		a := mustSubmit(t, s, queued("a", "ml", 8))
		synctest.Wait()
		for i := range uint32(2) { // without the label, it runs anywhere but on reserved workers
			if x := c.task(a, i); x.Worker != plain {
				t.Errorf("task %d is %v on worker %d, want %d", i, x.State, x.Worker, plain)
			}
		}
		mustSetQueue(t, s, "ml", fsm.QueueSettings{Require: []fsm.Label{{Key: "pool", Value: "ml"}}})
		synctest.Wait()
		on := map[fsm.WorkerID]int{}
		for i := range uint32(8) {
			if x := c.task(a, i); x.State == fsm.Assigned {
				on[x.Worker]++
			}
		}
		if on[plain] != 2 || on[pool] != 2 {
			t.Errorf("got %v, want 2 on each of workers %d and %d", on, plain, pool)
		}
	})
}

// A change of the required labels queues all waiting tasks again, the oldest job first.
func TestNewLabelsOfAQueueKeepTheOrderOfItsJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "ml", fsm.QueueSettings{})
		var jobs []fsm.JobID
		for _, key := range []string{"a", "b", "c"} {
			jobs = append(jobs, mustSubmit(t, s, queued(key, "ml", 1)))
		}
		mustSetQueue(t, s, "ml", fsm.QueueSettings{Require: []fsm.Label{{Key: "pool", Value: "ml"}}})
		w := &fakeWorker{t: t, seq: s, name: "pool", answer: keep, next: 1, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 100)}
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "pool", Incarnation: "a", Slots: 1, Labels: []fsm.Label{{Key: "pool", Value: "ml"}}}, w); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, id := range jobs {
			want := fsm.Pending
			if i == 0 {
				want = fsm.Assigned
			}
			if state := c.task(id, 0).State; state != want {
				t.Errorf("the task of job %d is %v, want %v", i, state, want)
			}
		}
	})
}

// Nobody has paused the queue default, and nobody has set it.
func TestTheDefaultQueueIsNotSetToResumeIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		q, already, err := s.ResumeQueue(t.Context(), "default", "alice")
		if err != nil || !already || q == nil || q.Name != "default" || q.IsPaused() {
			t.Errorf("got %+v, already %v, %v", q, already, err)
		}
		c.machine.Read(func(v *fsm.State, _ uint64) {
			if v.Queue("default") != nil {
				t.Error("the queue was set")
			}
		})
	})
}

func TestTheSubmissionRateOfAQueueHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "web", fsm.QueueSettings{Rate: 30, PeriodMS: 60_000, Burst: 2})
		submit := func(key string) error {
			x := queued(key, "web", 1).submission()
			x.Queue = "web"
			_, err := s.Submit(t.Context(), x)
			return err
		}
		for _, key := range []string{"a", "b", "a"} { // the third one repeats the first
			if err := submit(key); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
		err := submit("c")
		busy, _ := errors.AsType[*sequencer.BusyError](err)
		if busy == nil || busy.Limit != sequencer.LimitQueueRate || busy.RetryAfter <= 1900*time.Millisecond || busy.RetryAfter > 2*time.Second {
			t.Fatalf("got %+v, want a delay of 2 s", err)
		}
		time.Sleep(busy.RetryAfter)
		if err := submit("c"); err != nil {
			t.Errorf("after the delay: %v", err)
		}
		if err := submit("d"); err == nil {
			t.Error("the next one is accepted, too")
		}
		mustSubmit(t, s, spec{key: "other queue", n: 1})
	})
}

// Its entry in the queue of before is dropped only when the queue reaches it.
func TestATaskThatIsResumedAfterItsJobMovedStartsInTheNewQueueOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		id := mustSubmit(t, s, spec{key: "k", n: 10})
		mustSubmit(t, s, spec{key: "other", n: 1}) // it has the same class, which stays therefore
		if _, _, err := s.PauseQueue(t.Context(), "etl", "new disk", "alice"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelTask(t.Context(), fsm.TaskRef{Job: id, Index: 1}, "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.MoveJob(t.Context(), fsm.MoveJob{Job: id, Queue: "etl"}, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, true); err != nil {
			t.Fatal(err)
		}
		attachWorker(t, s, "w1", "a", 20, keep)
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Assigned]; n != 0 {
			t.Errorf("%d tasks of a paused queue run", n)
		}
		if _, _, err := s.ResumeQueue(t.Context(), "etl", "alice"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Assigned]; n != 10 {
			t.Errorf("%d tasks run in the queue that was resumed, want 10", n)
		}
	})
}
