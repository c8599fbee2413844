package sequencer

import (
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// absorb takes up what the operations since the last call did.
func (s *Sequencer) absorb(b *batch) {
	for _, id := range b.fx.Sealed {
		s.sealed(b, id)
	}
	for _, id := range b.fx.Revived {
		s.revived(b, id)
	}
	for _, h := range b.fx.EndedAttempts { // before clean-up tasks, which wait for them, become ready
		s.attemptEnded(b, h)
	}
	for _, run := range b.fx.Ready {
		s.pushRun(b, run)
	}
	for _, d := range b.fx.Scheduled {
		s.timers.add(timer{at: s.wallToMono(b.now, d.DueMS), kind: timerDue, task: d.TaskRef, attempt: d.Attempt, due: d.DueMS})
	}
	for _, t := range b.fx.Reordered {
		s.moved(t)
	}
	for i, id := range b.fx.EndedJobs {
		if len(b.fx.Revived) > 0 && slices.Contains(b.fx.EndedJobs[:i], id) {
			continue // it ended, went on and ended
		}
		s.jobEnded(id)
	}
	s.notices(b)
	b.fx.Reset()
}

// sealed notes a new job.
func (s *Sequencer) sealed(b *batch, id fsm.JobID) {
	job, _ := s.view.Job(id)
	s.tasks += uint64(job.Total)
	s.armDeadline(b, job)
}

// revived notes that a job goes on: it is work again, and its deadline begins
// anew.
func (s *Sequencer) revived(b *batch, id fsm.JobID) {
	s.ended.remove(id)
	job, _ := s.view.Job(id)
	s.armDeadline(b, job)
}

// armDeadline begins the time that a job has. Its clean-up tasks do not end with
// it.
func (s *Sequencer) armDeadline(b *batch, job fsm.Job) {
	if job.Header.GetDeadlineMs() > 0 && !job.CleaningUp() {
		s.timers.add(timer{at: s.deadline(b, job), kind: timerDeadline, task: fsm.TaskRef{Job: job.ID}})
	}
}

// deadline is when the time that a job has is over.
func (s *Sequencer) deadline(b *batch, job fsm.Job) time.Time {
	return s.wallToMono(b.now, max(job.SubmittedMS, job.RevivedMS)+job.Header.GetDeadlineMs())
}

// pushRun makes ready tasks wait for workers.
func (s *Sequencer) pushRun(b *batch, run fsm.TaskRun) {
	if run.N == 1 {
		s.push(b, run.TaskRef)
		return
	}
	for a := range s.view.UniformRuns(run) {
		if a.State == fsm.Pending { // else they ended within the same batch
			s.pushAlike(b, a)
		}
	}
}

// pushAlike makes pending tasks wait for workers: at once, if each of them by
// itself needs nothing else.
func (s *Sequencer) pushAlike(b *batch, a fsm.UniformRun) {
	p := s.numbered(a.Job, a.Policy)
	if a.Cleanup || !a.Fresh || p.reuse > 0 || p.queueTimeout > 0 {
		for i := range a.N {
			s.push(b, fsm.TaskRef{Job: a.Job, Index: a.Index + i})
		}
		return
	}
	s.sched.PushRun(scheduler.TaskRef{Job: uint64(a.Job), Index: a.Index}, a.N, s.classOf(a.TaskRef, p), p.priority)
	s.becameReady(b, a.TaskRun)
}

// push makes a ready task wait for a worker.
func (s *Sequencer) push(b *batch, ref fsm.TaskRef) {
	t, ok := s.view.Task(ref)
	if !ok || t.State != fsm.Pending {
		return // it ended within the same batch
	}
	if t.Cleanup && s.heldBack(b, ref) {
		return
	}
	s.enqueue(b, ref, &t)
}

// enqueue hands a ready task to the scheduler.
func (s *Sequencer) enqueue(b *batch, ref fsm.TaskRef, t *fsm.Task) {
	p := s.numbered(ref.Job, t.Policy)
	if p.reuse > 0 && s.view.Reusable(ref, b.draft.NowMS()) {
		s.reuses = append(s.reuses, ref)
		return
	}
	s.queue(b, ref, t, p)
}

// queue hands a task to the scheduler that no remembered result ends.
func (s *Sequencer) queue(b *batch, ref fsm.TaskRef, t *fsm.Task, p *policyInfo) {
	avoid := scheduler.WorkerID(0)
	if t.Attempt > 0 {
		avoid = scheduler.WorkerID(t.Worker)
	}
	s.sched.Push(scheduler.TaskRef{Job: uint64(ref.Job), Index: ref.Index}, s.classOf(ref, p), p.priority, avoid)
	if p.queueTimeout > 0 {
		s.timers.add(timer{at: b.now.Add(p.queueTimeout), kind: timerQueue, task: ref, attempt: t.Attempt, due: t.NotBefore})
	}
	s.becameReady(b, fsm.TaskRun{TaskRef: ref, N: 1})
}

// moved gives a ready task that was updated its place in the order anew, or takes
// it out if it is to wait for a time. How long it has been ready stays so.
func (s *Sequencer) moved(ref fsm.TaskRef) {
	t, _ := s.view.Task(ref)
	if _, waits := s.cleanUps[ref]; waits { // it has no place yet
		if t.State != fsm.Pending {
			delete(s.cleanUps, ref)
		}
		return
	}
	to := scheduler.TaskRef{Job: uint64(ref.Job), Index: ref.Index}
	s.sched.Supersede(to)
	s.stale++
	if t.State != fsm.Pending {
		delete(s.readySince, ref)
		return
	}
	p := s.numbered(ref.Job, t.Policy)
	s.sched.Push(to, s.classOf(ref, p), p.priority, 0) // it has had no attempt, so there is no worker to avoid
}

// assign gives ready tasks to free slots as long as the entry has room.
func (s *Sequencer) assign(b *batch) {
	if s.assignOff.Load() {
		return
	}
	n := uint64(0)
	for b.room() {
		a, ok := s.sched.Next(s.waits)
		if !ok {
			break
		}
		ref := fsm.TaskRef{Job: fsm.JobID(a.Task.Job), Index: a.Task.Index}
		last, _ := s.view.Ready(ref)
		it := fsm.AssignItem{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: last + 1}, Worker: fsm.WorkerID(a.Worker)}
		w := s.workers[it.Worker]
		if r := b.draft.Assign(it); r != fsm.Accepted {
			// The view said that the task is ready and the worker is up.
			s.cfg.Logger.Error("assignment refused", "task", it.AttemptRef.String(), "worker_id", uint32(it.Worker), "reason", r.String())
			s.sched.Release(a.Worker, a.Class)
			continue
		}
		w.given++
		w.fed = b.now
		w.held.add(held{AttemptRef: it.AttemptRef, class: a.Class, given: b.at, number: w.given})
		m := b.toWorker(w)
		m.Assign = append(m.Assign, it)
		n++
		s.wasReady(b, ref)
	}
	s.cfg.Totals.Assignments.Add(n)
}

// attemptEnded handles a live attempt that was ended from here: its worker is
// told, and its slot stays taken until the worker says that nothing is left.
func (s *Sequencer) attemptEnded(b *batch, h fsm.HeldAttempt) {
	s.forgetOrphan(h.AttemptRef)
	s.watch.forget(h.AttemptRef)
	w := s.workers[h.Worker]
	if w == nil {
		return
	}
	if x := w.held.find(h.AttemptRef); x != nil {
		x.stopped = true
		b.stop(w.session, h.AttemptRef, dtaskv1.StopReason_STOP_REASON_CANCELLED)
	}
}

// wallToMono gives the moment of this process's own clock at which the wall
// clock will show wallMS.
func (s *Sequencer) wallToMono(now time.Time, wallMS int64) time.Time {
	return now.Add(time.UnixMilli(wallMS).Sub(s.cfg.WallClock()))
}
