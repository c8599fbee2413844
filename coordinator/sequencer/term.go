package sequencer

import (
	"context"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// startTerm rebuilds the soft state with one scan, and commits the first entry
// of the term. Nobody is disturbed: workers keep what they run and have time to
// come back.
func (s *Sequencer) startTerm(ctx context.Context) error {
	began := time.Now()
	s.openTerm()
	select {
	case <-s.ready:
	case <-s.failed:
		return s.failure
	case <-ctx.Done():
		return cause(ctx)
	}
	s.cfg.Logger.InfoContext(ctx, "term started", "took", time.Since(began), "jobs", s.view.JobCount(),
		"ready_tasks", s.sched.Len(), "workers", len(s.workers))
	return nil
}

// openTerm proposes the first entry of the term.
func (s *Sequencer) openTerm() {
	b := s.newBatch()
	if s.view.ClusterID() == "" {
		b.draft.Do(&fsm.SetClusterID{ID: s.cfg.NewClusterID()})
	}
	b.draft.Do(&fsm.Replica{ServerID: s.cfg.ServerID, Instance: s.cfg.Instance})
	for i := range s.cfg.Members {
		b.draft.Do(&s.cfg.Members[i])
	}
	b.draft.Do(&fsm.StartTerm{Term: s.cfg.Term, ServerID: s.cfg.ServerID})
	s.rebuild(b)
	b.then(func(_ uint64, err error) {
		if err == nil {
			close(s.ready)
		}
	})
	s.sweptAt, s.expiredAt = time.Now(), time.Now()
	s.pipe <- struct{}{} // it is empty still
	s.propose(b)
}

// rebuild makes the soft state from the view.
func (s *Sequencer) rebuild(b *batch) {
	for w := range s.view.Workers() {
		if w.State == fsm.WorkerUp {
			s.rebuildWorker(w)
		}
	}
	// Each worker has the time that it takes to admit all of them.
	grace := max(s.cfg.TimeScale.Scale(5*time.Second), time.Duration(len(s.workers))*time.Second/time.Duration(s.cfg.AdmissionRate))
	for _, w := range s.workers {
		w.deadline = b.now.Add(grace)
	}
	var open []fsm.Job // newest first
	for job := range s.view.Jobs(0) {
		s.tasks += uint64(job.Total)
		if job.State.Terminal() {
			s.ended.add(&job)
			continue
		}
		open = append(open, job)
	}
	slices.Reverse(s.ended.done.list)
	slices.Reverse(s.ended.open.list)
	for _, job := range slices.Backward(open) {
		s.rebuildJob(b, job)
	}
	for id := range s.view.Uploads() {
		s.timers.add(timer{at: b.now.Add(s.cfg.UploadTimeout), kind: timerUpload, task: fsm.TaskRef{Job: id}})
	}
}

func (s *Sequencer) rebuildWorker(w *fsm.Worker) {
	s.workers[w.ID] = &worker{id: w.ID, name: w.Name, incarnation: w.Incarnation, pace: newPace()}
	join := fsm.RegisterWorker{Slots: w.Slots, Labels: w.Labels, Resources: w.Resources}
	s.sched.AddWorker(scheduler.WorkerID(w.ID), capacity(&join))
	s.sched.SetAccepting(scheduler.WorkerID(w.ID), false) // until it is attached
}

func (s *Sequencer) rebuildJob(b *batch, job fsm.Job) {
	s.armDeadline(b, job)
	for a := range s.view.UniformRuns(fsm.TaskRun{TaskRef: fsm.TaskRef{Job: job.ID}, N: job.Total}) {
		switch a.State {
		case fsm.Pending:
			s.pushAlike(b, a)
		case fsm.Scheduled, fsm.Assigned:
			for i := range a.N {
				s.rebuildTask(b, fsm.TaskRef{Job: job.ID, Index: a.Index + i})
			}
		case fsm.Blocked, fsm.Completed, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		}
	}
}

// rebuildTask takes up a task that waits for a time, or has a live attempt.
func (s *Sequencer) rebuildTask(b *batch, ref fsm.TaskRef) {
	t, _ := s.view.Task(ref)
	if t.State == fsm.Scheduled {
		s.timers.add(timer{at: s.wallToMono(b.now, t.DueMS), kind: timerDue, task: ref, attempt: t.Attempt, due: t.DueMS})
		return
	}
	item := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: t.Attempt}, Worker: t.Worker}
	s.rebuildAttempt(b, item, s.classOf(ref, s.numbered(ref.Job, t.Policy)), t.StartLogged)
}

// rebuildAttempt finds the holder of a live attempt. One whose worker is down
// can only be an at-most-once attempt that waits for its lease.
func (s *Sequencer) rebuildAttempt(b *batch, item fsm.HeldAttempt, class scheduler.ClassID, begun bool) {
	w := s.workers[item.Worker]
	if w == nil {
		s.orphan(b, item)
		return
	}
	x := held{AttemptRef: item.AttemptRef, class: class, given: b.at, rebuilt: true}
	if begun {
		x.began, x.beat = b.at, b.at
	}
	w.held.add(x)
	s.sched.Occupy(scheduler.WorkerID(w.id), class)
}
