package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A cleanup task must not run while the attempts before it still run.
func TestACleanupTaskWaitsForCancelledAttemptsToStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 4, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 3, finals: 1})
		w.await("two assignments", func() bool { return len(w.held) == 2 })
		if _, err := s.CancelJob(t.Context(), id, "enough"); err != nil {
			t.Fatal(err)
		}
		if already, err := s.CancelJob(t.Context(), id, "enough"); !already || err != nil {
			t.Errorf("a second cancel returned %v, %v", already, err)
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
		<-time.After(2 * time.Second)
		if v := c.task(id, 2); v.State != fsm.Pending {
			t.Fatalf("the cleanup task is %v while a command is being killed", v.State)
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[1])
		w.await("the cleanup task", func() bool { return len(w.held) == 3 })
		if job := c.job(id); job.State != fsm.JobRunning || job.Outcome != fsm.JobCancelled {
			t.Errorf("the job is %v, outcome %v", job.State, job.Outcome)
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[2])
		if job := c.awaitEnd(id); job.State != fsm.JobCancelled || c.task(id, 2).State != fsm.Completed {
			t.Errorf("the job is %v, the cleanup task %v", job.State, c.task(id, 2).State)
		}
	})
}

func TestAnAttemptThatNeverStopsDoesNotBlockCleanup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 2, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 2, finals: 1})
		w.await("the assignment", func() bool { return len(w.held) == 1 })
		if _, err := s.CancelJob(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		<-time.After(59 * time.Second)
		if v := c.task(id, 1); v.State != fsm.Pending {
			t.Errorf("after 59 s the cleanup task is %v", v.State)
		}
		<-time.After(2 * time.Second)
		if v := c.task(id, 1); v.State != fsm.Assigned {
			t.Errorf("after 61 s the cleanup task is %v", v.State)
		}
	})
}

// The deadline applies to ordinary tasks. Cleanup tasks have only their own
// timeouts, and a new leader doesn't end them either.
func TestCleanupTasksSurviveTheDeadlineAndTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		w := attachWorker(t, s, "w", "a", 2, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 2, finals: 1, header: &dtaskv1.JobHeader{Name: "late", DeadlineMs: 5000}})
		w.await("the assignment", func() bool { return len(w.held) == 1 })
		w.await("the stop", func() bool { return len(w.stops) == 1 })
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
		w.await("the cleanup task", func() bool { return len(w.held) == 2 })
		if err := end(); err != nil {
			t.Log(err)
		}
		s, _ = c.lead()
		again := attachWorker(t, s, "w", "a", 2, hold, w.held[1])
		<-time.After(10 * time.Second)
		if job := c.job(id); job.State != fsm.JobRunning || job.Outcome != fsm.JobFailed || job.Error != "deadline exceeded" {
			t.Errorf("the job is %v (%v): %q", job.State, job.Outcome, job.Error)
		}
		again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[1])
		if job := c.awaitEnd(id); job.State != fsm.JobFailed {
			t.Errorf("the job is %v", job.State)
		}
	})
}

func TestCancelNowEndsCleanupTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	answer := func(it fsm.AssignItem) *dtaskv1.Outcome {
		if it.Index == 1 {
			return nil
		}
		return succeed(it)
	}
	w := attachWorker(t, s, "w", "a", 2, answer)
	id := mustSubmit(t, s, spec{key: "k", n: 2, finals: 1})
	w.await("the cleanup task", func() bool { return len(w.held) == 1 })
	if _, err := s.CancelJob(t.Context(), id, ""); !isRejected(err, fsm.AlreadyEnded) {
		t.Errorf("cancel of a completed job that cleans up returned %v", err)
	}
	for _, want := range []bool{false, true} {
		if already, err := s.CancelJobNow(t.Context(), id, "now"); already != want || err != nil {
			t.Errorf("cancel now returned %v, %v", already, err)
		}
	}
	w.await("the stop", func() bool { return len(w.stops) == 1 })
	if job := c.job(id); job.State != fsm.JobCancelled || job.Error != "now" {
		t.Errorf("the job is %v: %q", job.State, job.Error)
	}
}

func TestAJobToleratesItsMaximumOfFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	attachWorker(t, s, "w", "a", 2, func(it fsm.AssignItem) *dtaskv1.Outcome {
		if it.Index < 3 {
			return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3, Fatal: true}
		}
		return succeed(it)
	})
	for tolerates, want := range map[uint32]fsm.JobState{2: fsm.JobFailed, 3: fsm.JobCompleted} {
		id := mustSubmit(t, s, spec{key: want.String(), n: 200, header: &dtaskv1.JobHeader{Name: want.String(), MaxFailures: tolerates}})
		if job := c.awaitEnd(id); job.State != want || job.Failed() != 3 {
			t.Errorf("with %d tolerated failures the job is %v with %d failed", tolerates, job.State, job.Failed())
		}
	}
}

// Its own retry policy applies.
func TestACleanupTaskOfAStoppingJobIsRetried(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	attachWorker(t, s, "w", "a", 2, func(it fsm.AssignItem) *dtaskv1.Outcome {
		if it.Index == 0 || it.Attempt == 1 {
			return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3, Fatal: it.Index == 0}
		}
		return succeed(it)
	})
	id := mustSubmit(t, s, spec{key: "k", n: 2, finals: 1})
	if job := c.awaitEnd(id); job.State != fsm.JobFailed || c.task(id, 1).State != fsm.Completed || c.task(id, 1).Attempt != 2 {
		t.Errorf("the job is %v, its cleanup task %+v", job.State, c.task(id, 1))
	}
	if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
		t.Fatal(err)
	}
	if job := c.awaitEnd(id); job.State != fsm.JobFailed || c.task(id, 1).Attempt != 3 {
		t.Errorf("retried: the job is %v, its cleanup task %+v", job.State, c.task(id, 1))
	}
}
