package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestARetryResumesTheJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	var healed atomic.Bool
	attachWorker(t, s, "w", "a", 4, func(it fsm.AssignItem) *dtaskv1.Outcome {
		if it.Index == 1 && !healed.Load() {
			return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3}
		}
		return succeed(it)
	})
	chain := func(i uint32) []uint32 {
		if i == 0 {
			return nil
		}
		return []uint32{i - 1}
	}
	id := mustSubmit(t, s, spec{key: "k", n: 4, deps: chain})
	if job := c.awaitEnd(id); job.State != fsm.JobFailed || c.task(id, 1).State != fsm.Dead {
		t.Fatalf("job is %v, task 1 %v; want failed, dead", job.State, c.task(id, 1).State)
	}
	var history []fsm.Attempt
	c.machine.Read(func(st *fsm.State, _ uint64) { history = st.History(fsm.TaskRef{Job: id, Index: 1}) })
	if len(history) != 4 || history[0].Number != 1 || history[3].Error != "exit code 3" {
		t.Errorf("history is %+v, want four attempts", history)
	}
	if _, err := s.Revive(t.Context(), fsm.Revive{Job: id, Tasks: []uint32{0}}, false); !isRejected(err, fsm.WrongState) {
		t.Errorf("retry of a completed task returned %v, want a rejection", err)
	}
	healed.Store(true)
	if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
		t.Fatal(err)
	}
	job := c.awaitEnd(id)
	if job.State != fsm.JobCompleted || job.Error != "" || c.task(id, 0).Attempt != 1 || c.task(id, 1).Attempt != 5 {
		t.Errorf("job is %v (%q), attempts %d and %d; want completed, 1 and 5", job.State, job.Error, c.task(id, 0).Attempt, c.task(id, 1).Attempt)
	}
}

func TestPurgedDeadLettersStayFailed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	attachWorker(t, s, "w", "a", 4, func(fsm.AssignItem) *dtaskv1.Outcome {
		return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3}
	})
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	c.awaitEnd(id)
	if _, err := s.Purge(t.Context(), fsm.Purge{Job: id}, false); err != nil {
		t.Fatal(err)
	}
	if v := c.task(id, 0); v.State != fsm.Failed {
		t.Errorf("a purged dead letter is %v, want failed", v.State)
	}
	if _, err := s.Purge(t.Context(), fsm.Purge{Job: id}, false); !isRejected(err, fsm.WrongState) {
		t.Errorf("a second purge returned %v, want a rejection", err)
	}
}

func isRejected(err error, want fsm.Reason) bool {
	var r *sequencer.RejectedError
	return errors.As(err, &r) && r.Reason == want
}

func TestATaskThatKillsItsWorkersIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		reported  bool // the worker reported the start before it went down
		newLeader bool // and then the leader changed
	}{
		"after it was reported as started":                      {reported: true},
		"before it is reported as started":                      {},
		"after a report to a leader that is gone":               {reported: true, newLeader: true},
		"before it is reported as started, with another leader": {newLeader: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *sequencer.Config) { cfg.MaxLosses = 3 }
				s, end := c.lead()
				id := mustSubmit(t, s, spec{key: "k", n: 1})
				for i := range 3 {
					w := attachWorker(t, s, fmt.Sprintf("w%d", i), "a", 1, hold)
					w.await("the task", func() bool { return len(w.held) == 1 })
					if x.reported {
						mustReport(t, s, w, &dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: &dtaskv1.AttemptRef{Job: uint64(id), Attempt: w.held[0].Attempt}}}})
					}
					w.fallSilent()
					s.Detach(w.id, w)
					if x.newLeader {
						if err := end(); !errors.Is(err, context.Canceled) {
							t.Fatal(err)
						}
						s, end = c.lead()
					}
					c.await("its worker down", func() bool { return c.task(id, 0).State != fsm.Assigned })
				}
				if v := c.task(id, 0); v.State != fsm.Dead || v.Attempt != 3 || v.Failures != 0 {
					t.Errorf("task is %v after %d attempts and %d failures, want dead after 3 and 0", v.State, v.Attempt, v.Failures)
				}
			})
		})
	}
}

func mustReport(t *testing.T, s *sequencer.Sequencer, w *fakeWorker, r *dtaskv1.Reports) {
	t.Helper()
	if err := s.Report(t.Context(), w.id, w, r, false); err != nil {
		t.Fatal(err)
	}
}

func TestARetryRestartsTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1, header: &dtaskv1.JobHeader{Name: "late", DeadlineMs: 10_000}})
		<-time.After(6 * time.Second)
		if _, err := s.CancelJob(t.Context(), id, "wait"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		if job := c.awaitEnd(id); job.Error != "deadline exceeded" {
			t.Errorf("job is %v: %q", job.State, job.Error)
		}
		if took := time.Since(since); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("the deadline fired %v after the retry, want 10 s", took)
		}
	})
}

func TestAJobThatEndsAndResumesInOneEntryIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.InFlight = 1 }
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 2})
		resume := c.log.pause()
		results := make(chan error, 3)
		ask := func(f func() error) {
			go func() { results <- f() }()
			synctest.Wait()
		}
		ask(func() error {
			_, err := s.Submit(t.Context(), spec{key: "fills the pipeline", n: 1}.submission())
			return err
		})
		ask(func() error { _, err := s.CancelJob(t.Context(), id, "enough"); return err })
		ask(func() error { _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); return err })
		resume()
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if job := c.job(id); job.State.Terminal() {
			t.Errorf("the job is %v", job.State)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Errorf("the soft state differs from the one that a new term would rebuild: %v", err)
		}
	})
}

// Each reason for another attempt is counted once, and only failures as retries.
func TestReleasedAttemptsAreNotCountedAsRetries(t *testing.T) {
	t.Parallel()
	for kind, retries := range map[dtaskv1.OutcomeKind]uint64{
		dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED:    0, // stolen, or its worker drains
		dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED:   0, // by its worker
		dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED:      1,
		dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT:   1,
		dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED: 1,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				attachWorker(t, s, "w", "a", 1, func(it fsm.AssignItem) *dtaskv1.Outcome {
					if it.Attempt == 1 {
						return &dtaskv1.Outcome{Kind: kind, Error: "no"}
					}
					return succeed(it)
				})
				retry := &dtaskv1.TaskPolicy{Type: "x", Retry: &dtaskv1.RetryPolicy{Max: 1}}
				id := mustSubmit(t, s, spec{key: "k", n: 1, header: &dtaskv1.JobHeader{Name: "j", Policies: []*dtaskv1.TaskPolicy{retry}}})
				job, task, n := c.awaitEnd(id), c.task(id, 0), s.Stats()
				requeues := 1 - retries
				if job.Retries != retries || job.Requeues != requeues || uint64(task.Failures) != retries || task.Attempt != 2 {
					t.Errorf("job: %d retries, %d requeues; task: %d failures, attempt %d; want %d, %d, %d, 2",
						job.Retries, job.Requeues, task.Failures, task.Attempt, retries, requeues, retries)
				}
				if n.Failures != retries || n.Requeues != requeues || n.Losses != 0 {
					t.Errorf("counted %d failures, %d requeues, %d losses; want %d, %d, 0", n.Failures, n.Requeues, n.Losses, retries, requeues)
				}
			})
		})
	}
}

// The task waits for its second attempt when it is cancelled, and is retried: it is ready twice, before and
// after others. It must wait behind them, and its third attempt must avoid the worker of the second one,
// although it avoided the first one's when it was queued first.
func TestATaskThatIsRetriedAfterItWasCancelledStartsAsItWasQueuedLast(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		tasks uint32
		job   bool
	}{
		"with its job":                       {tasks: 1, job: true},
		"with its job, of which others wait": {tasks: 20, job: true},
		"alone":                              {tasks: 1},
		"alone, while some of its job wait":  {tasks: 20},
		"alone, while many of its job wait":  {tasks: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &retriedTask{t: t, cluster: newCluster(t)}
				r.start(x.tasks)
				r.cancelAndRetry(x.job)
			})
		})
	}
}

// retriedTask is task 0 of job 1, each attempt of which fails. It has two workers with a slot each.
type retriedTask struct {
	*cluster
	t       *testing.T
	s       *sequencer.Sequencer
	workers []*fakeWorker
	mu      sync.Mutex // guards the rest; synctest.Wait is enough to read it
	started []fsm.TaskRef
	on      []fsm.WorkerID // of each attempt of the task
}

// start lets the first attempt of the task fail; it is ready, and nothing starts. The other tasks of its
// job have a lower priority.
func (r *retriedTask) start(tasks uint32) {
	r.s, _ = r.lead()
	atQueueLevel(r.t, r.s)
	run := func(it fsm.AssignItem) *dtaskv1.Outcome {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.started = append(r.started, it.TaskRef)
		if it.TaskRef == (fsm.TaskRef{Job: 1}) {
			r.on = append(r.on, it.Worker)
		}
		return nil
	}
	r.workers = []*fakeWorker{attachWorker(r.t, r.s, "w1", "a", 1, run), attachWorker(r.t, r.s, "w2", "a", 1, run)}
	r.pause(true)
	id := mustSubmit(r.t, r.s, spec{key: "k", n: tasks, header: &dtaskv1.JobHeader{Name: "j", OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE}})
	for i := uint32(1); i < tasks; i++ {
		mustUpdate(r.t, r.s, priorityOf(id, i, dtaskv1.Priority_PRIORITY_LOW))
	}
	r.pause(false)
	r.endAttempts()
}

func (r *retriedTask) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *retriedTask) pause(paused bool) {
	r.t.Helper()
	if paused {
		_, _, err := r.s.PauseQueue(r.t.Context(), fsm.DefaultQueue, "", "")
		r.must(err)
	} else {
		_, _, err := r.s.ResumeQueue(r.t.Context(), fsm.DefaultQueue, "")
		r.must(err)
	}
	synctest.Wait()
}

// endAttempts pauses the queue, and ends what runs: an attempt of the task fails, and is ready again.
func (r *retriedTask) endAttempts() {
	r.t.Helper()
	r.pause(true)
	for _, w := range r.workers {
		for _, a := range w.held {
			how := dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
			if a.TaskRef == (fsm.TaskRef{Job: 1}) {
				how = dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED
			}
			w.report(how, a)
		}
		w.held = nil
	}
	pass(time.Second)
}

func (r *retriedTask) cancelAndRetry(wholeJob bool) {
	r.t.Helper()
	ctx, task := r.t.Context(), fsm.TaskRef{Job: 1}
	other := mustSubmit(r.t, r.s, spec{key: "other", n: 2})
	retry := fsm.Revive{Job: 1, Tasks: []uint32{0}}
	if wholeJob {
		_, err := r.s.CancelJob(ctx, 1, "wait")
		r.must(err)
		retry.Tasks = nil
	} else {
		_, err := r.s.CancelTask(ctx, task, "wait")
		r.must(err)
	}
	_, err := r.s.Revive(ctx, retry, false)
	r.must(err)
	r.must(r.s.Audit(ctx))
	r.started = nil
	r.pause(false)
	for _, ref := range r.started { // in the order in which the workers got them
		if ref.Job != other {
			r.t.Errorf("task %v was started before those of job %d, which were ready when it was retried", ref, other)
		}
	}
	_, err = r.s.CancelJob(ctx, other, "enough")
	r.must(err)
	for range 2 {
		r.endAttempts()
		r.pause(false)
	}
	if len(r.on) != 3 || r.on[0] == r.on[1] || r.on[1] == r.on[2] {
		r.t.Errorf("the attempts of the task ran on the workers %v; want three, each on another one than the last", r.on)
	}
}
