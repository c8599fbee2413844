package sequencer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// standStill makes the sequencer wait for its log by filling the pipeline.
func (c *cluster) standStill(s *sequencer.Sequencer) (resume func()) {
	resume = c.log.pause()
	for _, key := range []string{"fill1", "fill2", "fill3", "fill4"} {
		go func() { _, _ = s.Submit(context.Background(), spec{key: key, n: 1}.submission()) }()
		synctest.Wait()
	}
	return resume
}

func (w *fakeWorker) tell(r *dtaskv1.Reports) {
	w.t.Helper()
	if err := w.seq.Report(context.Background(), w.id, w, r, false); err != nil {
		w.t.Fatalf("report: %v", err)
	}
	synctest.Wait()
}

var atMostOnce = &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}

func TestAPausedLeaderFailsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]*dtaskv1.TaskPolicy{
		"heartbeat timeout": {Type: "x", TimeoutMs: 600_000, HeartbeatTimeoutMs: 2000},
		"timeout":           {Type: "x", TimeoutMs: 10_000},
		"start timeout":     {Type: "x", TimeoutMs: 600_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				w := attachWorker(t, s, "w", "a", 1, hold)
				id := mustSubmit(t, s, spec{key: "k", n: 1, policy: policy})
				w.await("its assignment", func() bool { return len(w.held) == 1 })
				if name != "start timeout" {
					w.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(w.held[0])}}})
				}
				resume := c.standStill(s)
				<-time.After(2 * time.Minute)
				resume()
				<-time.After(500 * time.Millisecond) // the worker's report is applied only now
				w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[0])
				synctest.Wait()
				if v := c.task(id, 0); v.State != fsm.Completed || v.Attempt != 1 {
					t.Errorf("the task is %v at attempt %d, want completed at 1", v.State, v.Attempt)
				}
			})
		})
	}
}

func TestAnAbandonedHelloLeavesNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		resume := c.standStill(s)
		gone := &fakeWorker{t: t, seq: s, changed: make(chan struct{}, 1), work: make(chan []fsm.AssignItem, 16)}
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := s.Attach(ctx, sequencer.Hello{Name: "w", Incarnation: "a", Slots: 1}, gone)
			answer <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		resume()
		if err := <-answer; !errors.Is(err, context.Canceled) {
			t.Fatalf("attach returned %v", err)
		}
		synctest.Wait()
		for id, w := range s.Workers() {
			if w.Attached || w.Held > 0 {
				t.Errorf("worker %d is %+v after its stream has ended", id, w)
			}
		}
		attachWorker(t, s, "w", "b", 1, hold) // the name is free immediately
	})
}

func TestAFailedTermKeepsNoEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		log := &losingLog{machine: c.machine, observe: func(fsm.Entry, bool) func(fsm.Applied) { return func(fsm.Applied) {} }}
		c.config = func(cfg *sequencer.Config) { cfg.Log = log }
		s, end := c.lead()
		log.mu.Lock()
		log.slow = true
		log.mu.Unlock()
		for _, key := range []string{"a", "b", "c"} {
			go func() { _, _ = s.Submit(t.Context(), spec{key: key, n: 1}.submission()) }()
			synctest.Wait()
		}
		log.lose(func() error { return errUnknown })
		synctest.Wait()
		_ = end()
		if len(log.late) != 3 {
			t.Fatalf("%d entries were in flight, want 3", len(log.late))
		}
		for i, data := range log.late {
			data[0] = 0xff // an unknown format: only a cached entry decodes
			if _, ok := c.machine.Apply(100+uint64(i), data).(*fsm.HaltError); !ok {
				t.Errorf("entry %d of the failed term is still cached", i)
			}
		}
	})
}

// beginOnce starts an at-most-once attempt on a new worker.
func beginOnce(t *testing.T, s *sequencer.Sequencer) (*fakeWorker, fsm.JobID) {
	t.Helper()
	w := attachWorker(t, s, "w", "a", 1, hold)
	id := mustSubmit(t, s, spec{key: "k", n: 1, policy: atMostOnce})
	w.await("its assignment", func() bool { return len(w.held) == 1 })
	w.tell(&dtaskv1.Reports{StartRequests: []*dtaskv1.AttemptRef{refTo(w.held[0])}})
	w.await("its start grant", func() bool { return len(w.begins) == 1 })
	return w, id
}

func TestAStartedAttemptThatReturnsWithItsWorkerContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w, id := beginOnce(t, s)
		w.fallSilent()
		<-time.After(10 * time.Second)
		again := attachWorker(t, s, "w", "a", 1, hold, w.held...)
		<-time.After(2 * time.Minute)
		if v := c.task(id, 0); v.State != fsm.Assigned || len(again.stops) > 0 {
			t.Errorf("the task is %v, stops %v; want assigned, none", v.State, again.stops)
		}
		again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[0])
		if job := c.awaitEnd(id); job.State != fsm.JobCompleted {
			t.Errorf("the job is %v: %s", job.State, job.Error)
		}
	})
}

func TestANewLeaderWaitsForTheLeaseOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		w, id := beginOnce(t, s)
		w.fallSilent() // it is partitioned and keeps running its attempt
		<-time.After(5 * time.Second)
		attachWorker(t, s, "w", "b", 1, hold) // another process uses its name
		_ = end()
		s, _ = c.lead()
		attachWorker(t, s, "w", "b", 1, hold)
		<-time.After(20 * time.Second)
		if v := c.task(id, 0); v.State != fsm.Assigned {
			t.Errorf("before the end of the lease the task is %v, want assigned", v.State)
		}
		<-time.After(20 * time.Second)
		if v := c.task(id, 0); v.State != fsm.Lost {
			t.Errorf("after the end of the lease the task is %v, want lost", v.State)
		}
	})
}

func TestEachLossOfAStartedAttemptHasItsOwnLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w, id := beginOnce(t, s)
		w.fallSilent()
		<-time.After(20 * time.Second)
		again := attachWorker(t, s, "w", "a", 1, hold, w.held...)
		<-time.After(time.Second)
		again.fallSilent()
		since := time.Now()
		c.awaitEnd(id)
		if took := time.Since(since); took < 33*time.Second || took > 35*time.Second {
			t.Errorf("lost after %v, want 3 s of liveness timeout and 30 s of lease", took)
		}
	})
}

func TestAMalformedOutcomeStillEndsItsTask(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		outcome *dtaskv1.Outcome
		want    string
	}{
		"digest":       {&dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, OutputSha256: make([]byte, 31)}, "invalid SHA-256 of the output"},
		"result":       {&dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: make([]byte, 4<<10+1)}, "result exceeds 4 KiB"},
		"error":        {&dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Error: strings.Repeat("x", 20_000)}, strings.Repeat("x", 1024)},
		"release":      {&dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: strings.Repeat("x", 20_000)}, "ended before completion: " + strings.Repeat("x", 1024)},
		"no kind":      {&dtaskv1.Outcome{}, "ended before completion: "},
		"unknown kind": {&dtaskv1.Outcome{Kind: 99, Error: "new"}, "new"},
		"half a rune":  {&dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, Error: strings.Repeat("x", 1023) + "ß"}, strings.Repeat("x", 1023)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				w, id := beginOnce(t, s)
				w.tell(&dtaskv1.Reports{Outcomes: outcomesOf(1, ended{at: w.held[0], how: x.outcome})})
				if v := c.task(id, 0); v.State != fsm.Failed {
					t.Fatalf("the task is %v, want failed", v.State)
				}
				c.machine.Read(func(st *fsm.State, _ uint64) {
					if got := st.Result(fsm.TaskRef{Job: id}).Error; got != x.want {
						t.Errorf("error %q, want %q", got, x.want)
					}
				})
			})
		})
	}
}

func TestACancelledJobLeavesNothingInTheScheduler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		kept := mustSubmit(t, s, spec{key: "kept", n: 10})
		id := mustSubmit(t, s, spec{key: "k", n: 20_000})
		if _, err := s.CancelJob(t.Context(), id, "enough"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if n := s.Waiting(t.Context()); n != 10 {
			t.Errorf("%d tasks wait, want the 10 of the other job", n)
		}
		attachWorker(t, s, "w", "a", 1, succeed)
		if job := c.awaitEnd(kept); job.State != fsm.JobCompleted {
			t.Errorf("the other job is %v", job.State)
		}
	})
}

func TestAMassTimeoutExtendsDeadlinesOnce(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		silent   int
		closed   bool // their sessions ended too
		min, max time.Duration
	}{
		"two of five":               {2, false, 3 * time.Second, 4 * time.Second},
		"three of five":             {3, false, 6 * time.Second, 7 * time.Second},
		"three of five, and closed": {3, true, 3 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				var workers []*fakeWorker
				for _, n := range []string{"w1", "w2", "w3", "w4", "w5"} {
					workers = append(workers, attachWorker(t, s, n, n, 1, hold))
				}
				mustSubmit(t, s, spec{key: "k", n: 5})
				for _, w := range workers {
					w.await("its assignment", func() bool { return len(w.held) == 1 })
				}
				for range 2 { // the guard must not depend on the first time
					since := time.Now()
					for _, w := range workers[:x.silent] {
						w.fallSilent()
						if x.closed {
							s.Detach(w.id, w)
						}
					}
					c.await("workers down", func() bool { return up(c) == 5-x.silent })
					if took := time.Since(since); took < x.min || took > x.max {
						t.Errorf("marked down after %v, want %v to %v", took, x.min, x.max)
					}
					<-time.After(10 * time.Second)
					for i, w := range workers[:x.silent] {
						workers[i] = attachWorker(t, s, w.name, w.name+"again", 1, hold)
					}
				}
			})
		})
	}
}

func up(c *cluster) int {
	n := 0
	c.machine.Read(func(s *fsm.State, _ uint64) {
		for w := range s.Workers() {
			if w.State == fsm.WorkerUp {
				n++
			}
		}
	})
	return n
}

func TestARefusedHelloLeavesNoWorkerUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		w.await("its assignment", func() bool { return len(w.held) == 1 })
		s.Detach(w.id, w)
		_, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: strings.Repeat("b", 10_000), Slots: 1}, w)
		if _, ok := errors.AsType[*sequencer.RejectedError](err); !ok {
			t.Fatalf("attach returned %v, want a rejection", err)
		}
		<-time.After(5 * time.Second)
		if n := up(c); n != 0 {
			t.Errorf("%d workers are up without a liveness check", n)
		}
		attachWorker(t, s, "other", "c", 1, succeed)
		c.awaitEnd(id)
	})
}

func TestAssignmentResumesAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		s.StopAssigning(true)
		w := attachWorker(t, s, "w", "a", 4, hold)
		mustSubmit(t, s, spec{key: "k", n: 4})
		<-time.After(time.Minute)
		w.mu.Lock()
		if len(w.held) > 0 {
			t.Error("tasks were assigned during the pause")
		}
		w.mu.Unlock()
		s.StopAssigning(false)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.held) != 4 {
			t.Errorf("%d tasks were assigned, want 4", len(w.held))
		}
	})
}

func TestAnUploadThatNobodySealsIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		log := &losingLog{machine: c.machine, observe: func(fsm.Entry, bool) func(fsm.Applied) { return func(fsm.Applied) {} }}
		c.config = func(cfg *sequencer.Config) { cfg.Log, cfg.EntryBytes = log, 64<<10 }
		s, end := c.lead()
		log.mu.Lock()
		log.slow = true
		log.mu.Unlock()
		answer := make(chan error, 1)
		go func() {
			_, err := s.Submit(t.Context(), spec{key: "k", n: 100_000}.submission())
			answer <- err
		}()
		synctest.Wait()
		log.flush(2)
		log.lose(func() error { return errNeverProposed })
		if err := <-answer; !errors.Is(err, sequencer.ErrTermEnded) {
			t.Fatalf("submit returned %v, want ErrTermEnded: nothing was sealed", err)
		}
		_ = end()
		held := func() (jobs, keys int) {
			c.machine.Read(func(st *fsm.State, _ uint64) { jobs, keys = st.JobCount(), st.Keys() })
			return jobs, keys
		}
		if jobs, keys := held(); jobs != 1 || keys != 1 {
			t.Fatalf("%d jobs and %d keys, want the upload", jobs, keys)
		}
		log.elect(0)
		c.lead()
		<-time.After(62 * time.Second)
		if jobs, keys := held(); jobs != 0 || keys != 0 {
			t.Errorf("%d jobs and %d keys are left of an abandoned upload", jobs, keys)
		}
	})
}

func TestAReportOfAReplacedSessionIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		old := attachWorker(t, s, "w", "a", 1, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		old.await("its assignment", func() bool { return len(old.held) == 1 })
		attachWorker(t, s, "w", "a", 1, hold, old.held...)
		old.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, old.held[0])
		synctest.Wait()
		// It was not acknowledged: the worker repeats it in its new session.
		if v := c.task(id, 0); v.State != fsm.Assigned || old.through != 0 {
			t.Errorf("the task is %v, acknowledged through %d", v.State, old.through)
		}
	})
}
