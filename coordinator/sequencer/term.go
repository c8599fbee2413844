package sequencer

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// startTerm rebuilds the soft state in one scan and commits the first entry of
// the term. Workers keep running their attempts, and have time to reconnect.
func (s *Sequencer) startTerm(ctx context.Context) error {
	start := time.Now()
	s.openTerm()
	select {
	case <-s.opened:
	case <-s.pipe.failed:
		return s.pipe.failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.cfg.Logger.InfoContext(ctx, "term started", "took", time.Since(start), "jobs", s.view.JobCount(),
		"ready_tasks", s.dispatch.sched.Len(), "workers", len(s.workers.byID))
	return nil
}

// openTerm proposes the first entry of the term.
func (s *Sequencer) openTerm() {
	b := s.batches.next(s.view)
	if s.view.ClusterID() == "" {
		b.entry.Do(&fsm.SetClusterID{ID: s.cfg.NewClusterID()})
	}
	b.entry.Do(&fsm.Replica{ServerID: s.cfg.ServerID, Instance: s.cfg.Instance})
	for i := range s.cfg.Members {
		b.entry.Do(&s.cfg.Members[i])
	}
	b.entry.Do(&fsm.StartTerm{Term: s.cfg.Term, ServerID: s.cfg.ServerID})
	s.rebuild(b)
	s.dispatch.gauge(b) // until now, the gauges may be of an earlier term of this process
	s.workers.gauge()
	b.then(func(_ uint64, err error) {
		if err == nil {
			close(s.opened)
		}
	})
	s.sweeps.last, s.retention.expiredAt = b.now, b.now
	s.pipe.slots <- struct{}{} // the pipeline is empty
	s.pipe.propose(b)
}

// rebuild builds the soft state from the view.
func (s *Sequencer) rebuild(b *batch) {
	for w := range b.view.Workers() {
		if w.State == fsm.WorkerUp {
			s.workers.rebuild(w)
		}
	}
	s.queues.rebuild(b)
	s.workers.settling.begin(b)
	// Each worker gets the time that the admission of all of them takes. It must
	// also exceed the time for which an answer of the previous leader lets a
	// worker start attempts: a paused leader may answer up to two thirds of the
	// liveness timeout into this term, and its answer counts for two thirds.
	workers := s.workers.byID
	grace := max(s.cfg.TimeScale.Scale(5*time.Second), s.cfg.LivenessTimeout*5/3,
		time.Duration(len(workers))*time.Second/time.Duration(s.cfg.AdmissionRate))
	for _, w := range workers {
		w.deadline = b.now.Add(grace)
	}
	var open []fsm.Job // newest first
	for job := range b.view.Jobs(0) {
		s.retention.tasks += uint64(job.Total)
		if job.State.Terminal() {
			s.retention.add(&job)
			s.gates.keys.rebuildEnded(b, &job)
			continue
		}
		open = append(open, job)
	}
	slices.Reverse(s.retention.completed.list)
	slices.Reverse(s.retention.others.list)
	for _, job := range slices.Backward(open) {
		s.rebuildJob(b, job)
	}
	s.schedules.rebuild(b)
	s.gates.offset, s.timers.offset = offsetOf(b), offsetOf(b)
	s.gates.keys.rebuildWorkers(&s.workers)
	for id := range b.view.Uploads() {
		s.timers.add(timer{at: b.now.Add(s.cfg.UploadTimeout), kind: timerUpload, task: fsm.TaskRef{Job: id}})
	}
}

func (s *Sequencer) rebuildJob(b *batch, job fsm.Job) {
	s.timers.addDeadline(b, job)
	s.gates.rebuild(b, &job)
	for a := range b.view.UniformRuns(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: job.ID}, N: job.Total}) {
		switch a.State {
		case fsm.Pending:
			s.dispatch.pushUniform(b, a)
		case fsm.Scheduled, fsm.Assigned:
			for i := range a.N {
				s.dispatch.rebuildTask(b, fsm.TaskRef{Job: job.ID, Index: a.Index + i})
			}
		case fsm.Blocked, fsm.Completed, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		}
	}
}

// longestWait returns how long a scheduled task may wait from now, whatever the wall
// clocks show: a retry at most its delay, because the due time is by the clock of the
// leader that decided it, which may have been an hour ahead. A start time is a time of
// day and has no limit.
func (d *dispatcher) longestWait(b *batch, ref fsm.TaskRef, t fsm.Task) time.Duration {
	if t.Attempt == 0 {
		return math.MaxInt64
	}
	return d.policies.numbered(b.view, ref.Job, t.Policy).rules.Backoff.Delay(int(t.Failures), backoffSeed(ref))
}

// rebuildTask adds a task that waits for a time, or has a live attempt.
func (d *dispatcher) rebuildTask(b *batch, ref fsm.TaskRef) {
	t, _ := b.view.Task(ref)
	a := fsm.AttemptRef{TaskRef: ref, Attempt: t.Attempt}
	if t.State == fsm.Scheduled {
		d.timers.addDue(b, a, t.DueMS, d.longestWait(b, ref, t))
		return
	}
	d.workers.rebuildAttempt(b, fsm.HeldAttempt{AttemptRef: a, Worker: t.Worker}, t.StartLogged)
}
