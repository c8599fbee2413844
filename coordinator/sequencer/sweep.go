package sequencer

import (
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/backoff"
)

// sweepEvery is how often workers and running attempts are looked at. They are
// few beside tasks, so looking at all of them is cheaper, and simpler, than a
// timer for each.
const sweepEvery = 250 * time.Millisecond

// pauseGap is a gap between two sweeps that only a paused process explains.
const pauseGap = time.Second

// dueAtOnce bounds how much overdue work one entry releases.
const dueAtOnce = 2000

// untilNext is how long nothing happens by itself.
func (s *Sequencer) untilNext() time.Duration {
	now := time.Now()
	d := sweepEvery - now.Sub(s.sweptAt)
	if at, ok := s.timers.next(); ok {
		d = min(d, at.Sub(now))
	}
	return d
}

// fire does what time has brought.
func (s *Sequencer) fire(b *batch) {
	for n := 0; n < dueAtOnce && b.room(); n++ {
		t, ok := s.timers.due(b.now)
		if !ok {
			break
		}
		s.fireOne(b, t)
	}
	s.absorb(b)
	if b.now.Sub(s.sweptAt) < sweepEvery || !b.room() {
		return
	}
	gap := b.now.Sub(s.sweptAt) - sweepEvery
	s.sweptAt = b.now
	if gap > pauseGap {
		s.forgive(b.now, gap)
	}
	s.sweepWorkers(b)
	s.sweepAttempts(b)
	s.housekeeping(b)
	s.absorb(b)
}

func (s *Sequencer) fireOne(b *batch, t timer) {
	switch t.kind {
	case timerDue:
		b.draft.Due(fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt})
	case timerQueue:
		if attempt, ready := s.view.Ready(t.task); ready && attempt == t.attempt {
			b.draft.Do(&fsm.FailTask{Task: t.task, Error: "queue time-out: no worker took it in time"})
			s.stale++
		}
	case timerDeadline:
		s.fireDeadline(b, t.task.Job)
	case timerLease:
		a := fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt}
		if o, ok := s.orphans[a]; ok && !b.now.Before(o.until) {
			delete(s.orphans, a)
			s.watch.forget(a)
			b.draft.Lose(fsm.HeldItem{AttemptRef: a, Worker: o.worker})
		}
	case timerUpload:
		b.draft.Do(&fsm.JobDrop{Job: t.task.Job})
	}
}

// fireDeadline ends a job whose time is over. A timer may be too early: it may be
// from before a retry of the job, or the wall clock may have been set back.
func (s *Sequencer) fireDeadline(b *batch, id fsm.JobID) {
	job, ok := s.view.Job(id)
	switch {
	case !ok || job.State.Terminal():
	case s.deadline(b, job).After(b.now):
		s.armDeadline(b, job)
	default:
		b.draft.Do(&fsm.FailJob{Job: id, Error: "deadline exceeded"})
	}
}

// forgive starts all silence clocks anew and gives attempts the time back: this
// process was paused, or waited for its log, and what the workers said meanwhile
// has not been read yet.
func (s *Sequencer) forgive(now time.Time, gap time.Duration) {
	s.cfg.Logger.Warn("this process was paused: silence clocks start anew", "gap", gap)
	for _, w := range s.workers {
		w.deadline = later(w.deadline, now.Add(s.cfg.Silence))
		for a, x := range w.held {
			x.since = x.since.Add(gap)
			if !x.began.IsZero() {
				x.began, x.beat = x.began.Add(gap), x.beat.Add(gap)
			}
			w.held[a] = x
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sweepWorkers gives up those that were silent for too long.
func (s *Sequencer) sweepWorkers(b *batch) {
	var silent []*worker // with a session
	for _, w := range s.workers {
		limit := w.deadline
		if w.session != nil {
			limit = later(limit, w.session.LastHeard().Add(s.cfg.Silence))
		}
		switch {
		case b.now.Before(limit):
		case w.session != nil:
			silent = append(silent, w)
		case !b.room():
		case w.draining && len(w.held) == 0:
			s.lost(b, w, "left")
		default:
			s.lost(b, w, "silent")
		}
	}
	if s.doubts(b.now, silent) {
		return
	}
	for _, w := range silent {
		if b.room() {
			s.lost(b, w, "silent")
		}
	}
}

// doubts reports whether so many workers fell silent at once, without a word of
// their connections' end, that this replica suspects itself first: they get their
// time once more.
func (s *Sequencer) doubts(now time.Time, silent []*worker) bool {
	if len(silent) < 3 || 2*len(silent) <= len(s.workers) || now.Sub(s.doubtAt) < 2*s.cfg.Silence {
		return false
	}
	s.cfg.Logger.Warn("most workers fell silent together: they get their time once more", "silent", len(silent), "workers", len(s.workers))
	s.doubtAt = now
	for _, w := range silent {
		w.deadline = now.Add(s.cfg.Silence)
	}
	return true
}

// sweepAttempts ends attempts whose time is over and that their worker, silent
// about them or slow, has not ended itself.
func (s *Sequencer) sweepAttempts(b *batch) {
	for _, w := range s.workers {
		if w.session == nil {
			continue // its attempts are judged when it is back, or given up with it
		}
		for a, x := range w.held {
			if x.stopped || !b.room() {
				continue
			}
			s.sweepAttempt(b, w, a, x)
		}
	}
}

func (s *Sequencer) sweepAttempt(b *batch, w *worker, a fsm.AttemptRef, x held) {
	item := fsm.HeldItem{AttemptRef: a, Worker: w.id}
	if x.began.IsZero() {
		// Its own time-out may be shorter than the start time-out is long: an
		// attempt that began within the last report is judged by both.
		if b.now.Sub(x.since) > s.cfg.StartTimeout {
			s.stopHeld(b, w, a, dtaskv1.StopReason_STOP_REASON_TIMED_OUT)
			s.cfg.Totals.Requeues.Add(1)
			b.draft.Requeue(item, false)
		}
		return
	}
	p := s.policy(a.TaskRef)
	var text string
	switch {
	case p.runTimeout > 0 && b.now.Sub(x.began) > p.runTimeout+s.cfg.TimeoutSlack:
		text = fmt.Sprintf("time-out: ran for more than %v", p.runTimeout)
	case p.beatTimeout > 0 && b.now.Sub(x.beat) > p.beatTimeout+s.cfg.TimeoutSlack:
		text = fmt.Sprintf("heartbeat time-out: no progress for more than %v", p.beatTimeout)
	default:
		return
	}
	s.stopHeld(b, w, a, dtaskv1.StopReason_STOP_REASON_TIMED_OUT)
	took := uint32(b.now.Sub(x.began).Milliseconds()) //nolint:gosec // 49 days are enough
	s.fail(b, item, took, backoff.Failure{Kind: backoff.Timeout}, false, text)
}

// housekeeping removes what is kept no longer, a little at each sweep.
func (s *Sequencer) housekeeping(b *batch) {
	if keys := s.view.ExpiredKeys(s.keyShard, b.draft.NowMS(), 500); len(keys) > 0 {
		b.draft.Do(&fsm.ForgetKeys{Keys: keys})
	}
	s.keyShard = (s.keyShard + 1) % fsm.KeyShards
	s.forgetJobs(b)
	s.clean()
	s.gauge()
	if s.keyShard == 0 {
		s.forgetWorkers(b)
	}
	if len(s.readySince) > 0 && s.sched.Len() == 0 {
		clear(s.readySince)
	}
}

// clean takes tasks that ended while they waited out of the scheduler, once they
// may be half of what it holds.
func (s *Sequencer) clean() {
	if n := s.sched.Len(); n == 0 || s.stale < uint64(n)/2 || s.stale == 0 { //nolint:gosec // not negative
		return
	}
	s.stale = 0
	s.sched.Sweep(s.waits)
	for t := range s.readySince {
		if _, ready := s.view.Ready(t); !ready {
			delete(s.readySince, t)
		}
	}
}

// waits reports whether a task in the scheduler is still to be assigned.
func (s *Sequencer) waits(t scheduler.TaskRef) bool {
	_, ready := s.view.Ready(fsm.TaskRef{Job: fsm.JobID(t.Job), Index: t.Index})
	return ready
}

func (s *Sequencer) forgetWorkers(b *batch) {
	var ids []fsm.WorkerID
	oldest := b.draft.NowMS() - s.cfg.KeepWorkers.Milliseconds()
	for w := range s.view.Workers() {
		if w.State == fsm.WorkerDown && w.DownSince < oldest && len(ids) < 1000 && !s.hasOrphans(w.ID) {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 0 {
		b.draft.Do(&fsm.ForgetWorkers{IDs: ids})
	}
}

func (s *Sequencer) hasOrphans(id fsm.WorkerID) bool {
	for _, o := range s.orphans {
		if o.worker == id {
			return true
		}
	}
	return false
}
