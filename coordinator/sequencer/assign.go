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
	for _, t := range b.fx.Ready {
		s.push(b, t)
	}
	for _, d := range b.fx.Scheduled {
		s.timers.add(timer{at: s.wallToMono(b.now, d.DueMS), kind: timerDue, task: d.TaskRef, attempt: d.Attempt})
	}
	for _, h := range b.fx.Ended {
		s.attemptEnded(b, h)
	}
	for _, id := range b.fx.EndedJobs {
		s.jobEnded(id)
	}
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
	if i := slices.IndexFunc(s.ended, func(e endedJob) bool { return e.id == id }); i >= 0 {
		s.endedTasks -= s.ended[i].tasks
		s.ended = slices.Delete(s.ended, i, i+1)
	}
	job, _ := s.view.Job(id)
	s.armDeadline(b, job)
}

// armDeadline begins the time that a job has.
func (s *Sequencer) armDeadline(b *batch, job fsm.Job) {
	if job.Header.GetDeadlineMs() > 0 {
		s.timers.add(timer{at: s.deadline(b, job), kind: timerDeadline, task: fsm.TaskRef{Job: job.ID}})
	}
}

// deadline is when the time that a job has is over.
func (s *Sequencer) deadline(b *batch, job fsm.Job) time.Time {
	return s.wallToMono(b.now, max(job.SubmittedMS, job.RevivedMS)+job.Header.GetDeadlineMs())
}

// push makes a ready task wait for a worker.
func (s *Sequencer) push(b *batch, ref fsm.TaskRef) {
	t, ok := s.view.Task(ref)
	if !ok || t.State != fsm.Pending {
		return // it ended within the same batch
	}
	p := s.info(ref.Job).policies[t.Policy]
	avoid := scheduler.WorkerID(0)
	if t.Attempt > 0 {
		avoid = scheduler.WorkerID(t.Worker)
	}
	s.sched.Push(scheduler.TaskRef{Job: uint64(ref.Job), Index: ref.Index}, p.class, p.priority, avoid)
	if p.queueTimeout > 0 {
		s.timers.add(timer{at: b.now.Add(p.queueTimeout), kind: timerQueue, task: ref, attempt: t.Attempt})
	}
	if s.sampled() {
		s.readySince[ref] = b.now
	}
}

// sampled picks the tasks whose wait is measured: all of them while few wait,
// one in 64 under load.
func (s *Sequencer) sampled() bool {
	s.sample++
	return len(s.readySince) < 1024 || (s.sample%64 == 0 && len(s.readySince) < 1<<16)
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
		w.held[it.AttemptRef] = held{class: a.Class, since: b.now}
		m := b.to(w.session)
		m.Assign = append(m.Assign, it)
		n++
		if since, ok := s.readySince[ref]; ok {
			delete(s.readySince, ref)
			b.ready = append(b.ready, since)
		}
	}
	s.cfg.Totals.Assignments.Add(n)
}

// attemptEnded handles a live attempt that was ended from here: its worker is
// told, and its slot stays taken until the worker says that nothing is left.
func (s *Sequencer) attemptEnded(b *batch, h fsm.HeldItem) {
	delete(s.orphans, h.AttemptRef)
	s.watch.forget(h.AttemptRef)
	w := s.workers[h.Worker]
	if w == nil {
		return
	}
	if x, ok := w.held[h.AttemptRef]; ok {
		x.stopped = true
		w.held[h.AttemptRef] = x
		b.stop(w.session, h.AttemptRef, dtaskv1.StopReason_STOP_REASON_CANCELLED)
	}
}

// wallToMono gives the moment of this process's own clock at which the wall
// clock will show wallMS.
func (s *Sequencer) wallToMono(now time.Time, wallMS int64) time.Time {
	return now.Add(time.UnixMilli(wallMS).Sub(s.cfg.Wall()))
}
