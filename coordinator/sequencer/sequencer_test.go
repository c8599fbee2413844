package sequencer_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAJobRunsToCompletion(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]spec{
		"one task":    {key: "k", n: 1},
		"independent": {key: "k", n: 20_000},
		"chain": {key: "k", n: 1000, deps: func(i uint32) []uint32 {
			if i == 0 {
				return nil
			}
			return []uint32{i - 1}
		}},
		"fan in": {key: "k", n: 10_001, deps: func(i uint32) []uint32 {
			if i < 10_000 {
				return nil
			}
			all := make([]uint32, 10_000)
			for k := range all {
				all[k] = uint32(k)
			}
			return all
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s, _ := c.lead()
			attachWorker(t, s, "w1", "a", 64, succeed)
			attachWorker(t, s, "w2", "b", 64, succeed)
			id := mustSubmit(t, s, x)
			job := c.awaitEnd(id)
			if job.State != fsm.JobCompleted || job.Counts[fsm.Completed] != x.n || job.Retries != 0 {
				t.Fatalf("job ended as %v, %d completed, %d retries; want completed, %d, 0", job.State, job.Counts[fsm.Completed], job.Retries, x.n)
			}
		})
	}
}

func TestARepeatedKeyIsOneJobAndAnotherBodyAConflict(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, end := c.lead()
	x := spec{key: "k", n: 3000, chunk: 10}
	id := mustSubmit(t, s, x)
	again, err := s.Submit(t.Context(), x.submission())
	if err != nil || again.ID != id || !again.Existed {
		t.Fatalf("the second submission returned %+v, %v; want job %d, existed", again, err, id)
	}
	_ = end()
	s, _ = c.lead()
	other := x
	other.n++
	_, err = s.Submit(t.Context(), other.submission())
	var rejected *sequencer.RejectedError
	if !errors.As(err, &rejected) || rejected.Reason != fsm.KeyConflict {
		t.Fatalf("another body with the same key returned %v, want a conflict", err)
	}
}

func TestNothingLeavesBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w1", "a", 4, hold)
	resume := sync.OnceFunc(c.log.pause())
	t.Cleanup(resume)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = s.Submit(t.Context(), spec{key: "k", n: 4}.submission())
	}()
	// When a request behind it is answered, the sequencer has executed the
	// submission.
	workersOf(t, s)
	select {
	case <-answered:
		t.Error("the submission was answered before its entry was committed")
	default:
	}
	w.mu.Lock()
	if len(w.held) > 0 {
		t.Error("an assignment was sent before its entry was committed")
	}
	w.mu.Unlock()
	resume()
	<-answered
	w.await("its assignments", func() bool { return len(w.held) == 4 })
}

func TestAnUnknownOutcomeIsNeverNotLeader(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ cut, want error }{
		"unknown":  {errors.New("leadership lost"), sequencer.ErrOutcomeUnknown},
		"definite": {errNeverProposed, sequencer.ErrTermEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s, end := c.lead()
			c.log.fail(x.cut)
			_, err := s.Submit(t.Context(), spec{key: "k", n: 1}.submission())
			if !errors.Is(err, x.want) {
				t.Errorf("submit returned %v, want %v", err, x.want)
			}
			_ = end() // a request that comes before has an unknown outcome, too
			if _, err := s.CancelJob(t.Context(), 1, ""); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("after the term, cancel returned %v, want ErrTermEnded", err)
			}
		})
	}
}

func TestTasksOfAnUnreachableWorkerAreRequeued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		dead := attachWorker(t, s, "dead", "a", 3, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 3})
		dead.await("its assignments", func() bool { return len(dead.held) == 3 })
		attachWorker(t, s, "alive", "b", 3, succeed)
		// Two of the three were reported as started. The third may have been.
		r := &dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(dead.held[0])}, {Attempt: refTo(dead.held[1])}}}
		if err := s.Report(t.Context(), dead.id, dead, r, false); err != nil {
			t.Fatal(err)
		}
		dead.fallSilent()
		since := time.Now()
		job := c.awaitEnd(id)
		if took := time.Since(since); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("tasks of an unreachable worker completed after %v, want 3 to 4 s", took)
		}
		if job.State != fsm.JobCompleted || job.Retries != 3 || job.Requeues != 0 {
			t.Errorf("job ended as %v, %d retries, %d requeues; want completed, 3, 0", job.State, job.Retries, job.Requeues)
		}
		if c.task(id, 0).Failures != 0 {
			t.Error("the loss of a worker counted as a failure of the task")
		}
		if n := s.Stats(); n.Losses != 3 || n.Requeues != 0 || n.Failures != 0 {
			t.Errorf("counted %d losses, %d requeues, %d failures; want 3, 0, 0", n.Losses, n.Requeues, n.Failures)
		}
		dead.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, dead.held[0]) // its session has ended: the report is ignored
		if c.task(id, 0).Worker == dead.id {
			t.Error("a zombie's completion was accepted")
		}
	})
}

func TestANewTermDoesNotInterruptRunningTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		w := attachWorker(t, s, "w", "a", 8, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 8})
		w.await("its assignments", func() bool { return len(w.held) == 8 })
		_ = end()

		s, _ = c.lead()
		// One of the eight assignments never reached the worker.
		again := attachWorker(t, s, "w", "a", 8, hold, w.held[:7]...)
		if len(again.stops) > 0 {
			t.Errorf("running attempts were stopped: %v", again.stops)
		}
		again.await("the requeued attempt", func() bool { return len(again.held) == 8 })
		for _, a := range again.held {
			again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, a)
		}
		job := c.awaitEnd(id)
		if job.State != fsm.JobCompleted || job.Retries != 0 || job.Requeues != 1 {
			t.Errorf("job ended as %v with %d retries, %d requeues; want completed, 0, 1", job.State, job.Retries, job.Requeues)
		}
	})
}

func TestAWorkerThatDoesNotReconnectAfterAFailoverIsMarkedDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		w := attachWorker(t, s, "gone", "a", 2, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 2})
		w.await("its assignments", func() bool { return len(w.held) == 2 })
		_ = end()
		s, _ = c.lead()
		since := time.Now()
		attachWorker(t, s, "other", "b", 2, succeed)
		c.awaitEnd(id)
		if took := time.Since(since); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("tasks completed after %v, want 5 to 6 s: the time that workers have to reconnect", took)
		}
	})
}

func TestFailuresAreRetriedWithBackoffUntilDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		fails := func(fsm.AssignItem) *dtaskv1.Outcome {
			return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3}
		}
		attachWorker(t, s, "w", "a", 2, fails)
		policy := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 1000, Retry: &dtaskv1.RetryPolicy{Max: 3, InitialMs: 1000, MultiplierPermille: 2000, MaxDelayMs: 60_000}}
		since := time.Now()
		id := mustSubmit(t, s, spec{key: "k", n: 2, policy: policy, deps: func(i uint32) []uint32 { return []uint32{0}[:i] }})
		job := c.awaitEnd(id)
		if took := time.Since(since); took < 7*time.Second || took > 8*time.Second {
			t.Errorf("four attempts took %v, want 1+2+4 s of backoff", took)
		}
		if v := c.task(id, 0); v.State != fsm.Dead || v.Attempt != 4 {
			t.Errorf("task is %v after %d attempts, want dead after 4", v.State, v.Attempt)
		}
		if v := c.task(id, 1); v.State != fsm.Cancelled {
			t.Errorf("dependent is %v, want cancelled", v.State)
		}
		if job.State != fsm.JobFailed || job.Error != "task t0 dead: exit code 3" {
			t.Errorf("job is %v: %q", job.State, job.Error)
		}
	})
}

func TestCancelFreesASlotOnlyAfterTheAttemptStopped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w", "a", 1, hold)
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	w.await("its assignment", func() bool { return len(w.held) == 1 })
	if already, err := s.CancelJob(t.Context(), id, "enough"); already || err != nil {
		t.Fatalf("cancel returned %v, %v", already, err)
	}
	if already, err := s.CancelJob(t.Context(), id, "enough"); !already || err != nil {
		t.Fatalf("the second cancel returned %v, %v; want already", already, err)
	}
	w.await("the stop", func() bool { return len(w.stops) == 1 })
	next := mustSubmit(t, s, spec{key: "k2", n: 1})
	if v := c.task(next, 0); v.State != fsm.Pending {
		t.Fatalf("a task was assigned to a slot that is not free: %v", v.State)
	}
	w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
	w.await("the next assignment", func() bool { return len(w.held) == 2 })
	w.await("its verdict", func() bool { return len(w.acks) == 1 })
	if w.acks[0].GetVerdict() != dtaskv1.Verdict_VERDICT_SUPERSEDED {
		t.Errorf("verdict %v, want superseded", w.acks[0].GetVerdict())
	}
}

func TestAnAtMostOnceAttemptStartsOnlyAfterItsStartIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 2, hold)
		policy := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}
		header := &dtaskv1.JobHeader{Name: "j", OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE}
		id := mustSubmit(t, s, spec{key: "k", n: 2, policy: policy, header: header})
		w.await("its assignments", func() bool { return len(w.held) == 2 })
		started := w.held[0]
		ask := &dtaskv1.Reports{StartRequests: []*dtaskv1.AttemptRef{{Job: uint64(id), Task: started.Index, Attempt: started.Attempt}}}
		if err := s.Report(t.Context(), w.id, w, ask, false); err != nil {
			t.Fatal(err)
		}
		w.await("its start grant", func() bool { return len(w.begins) == 1 })
		if !c.task(id, started.Index).StartLogged {
			t.Fatal("the start was granted before it was committed")
		}
		w.fallSilent()
		since := time.Now()
		attachWorker(t, s, "other", "b", 2, succeed)
		c.awaitEnd(id)
		if took := time.Since(since); took < 33*time.Second || took > 35*time.Second {
			t.Errorf("the started attempt was lost after %v, want 3 s of liveness timeout and 30 s of lease", took)
		}
		if v := c.task(id, started.Index); v.State != fsm.Lost {
			t.Errorf("the started one is %v, want lost", v.State)
		}
		if v := c.task(id, 1-started.Index); v.State != fsm.Completed || v.Attempt != 2 {
			t.Errorf("the other is %v at attempt %d, want completed at 2", v.State, v.Attempt)
		}
	})
}

func TestTimeoutsOfTheCoordinator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, hold)
		policy := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 10_000}
		ran := mustSubmit(t, s, spec{key: "run", n: 1, policy: policy})
		w.await("its assignment", func() bool { return len(w.held) == 1 })
		r := &dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: &dtaskv1.AttemptRef{Job: uint64(ran), Attempt: 1}}}}
		if err := s.Report(t.Context(), w.id, w, r, false); err != nil {
			t.Fatal(err)
		}
		queued := mustSubmit(t, s, spec{key: "queue", n: 1, policy: &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 1000, QueueTimeoutMs: 2000}})
		late := mustSubmit(t, s, spec{key: "late", n: 1, header: &dtaskv1.JobHeader{Name: "late", DeadlineMs: 4000}})
		for id, want := range map[fsm.JobID]string{
			queued: "task t0 failed: queue timeout: not assigned in time",
			late:   "deadline exceeded",
			ran:    "task t0 failed: timeout: ran longer than 10s",
		} {
			if job := c.awaitEnd(id); job.State != fsm.JobFailed || job.Error != want {
				t.Errorf("job %d is %v: %q, want failed: %q", id, job.State, job.Error, want)
			}
		}
		w.await("the stop", func() bool { return len(w.stops) == 1 })
	})
}

func TestANameHasOneLiveProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w", "a", 1, hold)
	_, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "b", Slots: 1}, w)
	if _, ok := errors.AsType[*sequencer.NameInUseError](err); !ok {
		t.Fatalf("a second process under the name: got %v, want a refusal", err)
	}
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	w.await("its assignment", func() bool { return len(w.held) == 1 })
	s.Detach(w.id, w) // a closed connection frees the name immediately
	attachWorker(t, s, "w", "b", 1, succeed)
	if job := c.awaitEnd(id); job.State != fsm.JobCompleted || c.task(id, 0).Attempt != 2 {
		t.Errorf("job is %v at attempt %d, want completed at 2", job.State, c.task(id, 0).Attempt)
	}
}

func TestARefusedProcessLearnsWhichOneHasItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := &fakeWorker{t: t, seq: s, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 16)}
		first := sequencer.Hello{Name: "w", Incarnation: "a", Slots: 1, Address: "host", Peer: "10.0.0.3:4711", LockID: "disk1"}
		if _, err := s.Attach(t.Context(), first, w); err != nil {
			t.Fatal(err)
		}
		w.fallSilent()
		<-time.After(time.Second)
		for _, lock := range []string{"", "disk2"} {
			_, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "b", Slots: 1, LockID: lock}, w)
			want := sequencer.NameInUseError{Name: "w", Host: "host", Address: "10.0.0.3:4711", Silent: time.Second}
			if e, ok := errors.AsType[*sequencer.NameInUseError](err); !ok || *e != want {
				t.Errorf("lock %q: got %+v, want %+v", lock, err, want)
			}
		}
	})
}

// It holds the lock of the first one's directory: that is dead, although its
// connection looks healthy.
func TestASuccessorInTheSameDirectoryGetsTheNameImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := &fakeWorker{t: t, seq: s, answer: hold, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 16)}
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "a", Slots: 1, LockID: "disk"}, w); err != nil {
			t.Fatal(err)
		}
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		<-w.work
		next := &fakeWorker{t: t, seq: s, answer: hold, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 16)}
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "b", Slots: 1, LockID: "disk"}, next); err != nil {
			t.Fatalf("the successor was refused: %v", err)
		}
		<-next.work
		if v := c.task(id, 0); v.State != fsm.Assigned || v.Attempt != 2 {
			t.Errorf("the task is %v at attempt %d, want assigned at 2", v.State, v.Attempt)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed == nil {
			t.Error("the session of the dead process is open")
		}
	})
}

func TestAPausedLeaderMarksNoWorkerDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, hold)
		mustSubmit(t, s, spec{key: "k", n: 1})
		w.await("its assignment", func() bool { return len(w.held) == 1 })
		resume := c.log.pause() // three entries fill the pipeline: the sequencer waits
		w.fallSilent()
		for i := range 4 {
			go func() { _, _ = s.Submit(t.Context(), spec{key: string(rune('a' + i)), n: 1}.submission()) }()
			synctest.Wait()
		}
		<-time.After(10 * time.Second)
		resume()
		<-time.After(2 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed != nil {
			t.Errorf("a worker was marked down after a pause: %v", w.closed)
		}
	})
}

func BenchmarkThroughput(b *testing.B) {
	c := newCluster(b)
	s, _ := c.lead()
	for _, name := range []string{"w1", "w2", "w3", "w4"} {
		attachWorker(b, s, name, name, 512, succeed)
	}
	b.ResetTimer()
	id := mustSubmit(b, s, spec{key: "bench", n: uint32(b.N)})
	c.awaitEnd(id)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkTakeOver measures the start of a term with a million ready tasks,
// from New until it serves.
func BenchmarkTakeOver(b *testing.B) {
	const tasks = 1_000_000
	c := newCluster(b)
	s, end := c.lead()
	mustSubmit(b, s, spec{key: "bench", n: tasks, chunk: 1000})
	_ = end()
	for b.Loop() {
		next, end := c.lead()
		<-next.Ready()
		b.StopTimer()
		_ = end()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
}
