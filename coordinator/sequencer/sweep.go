package sequencer

import (
	"cmp"
	"fmt"
	"slices"
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
	d := s.cfg.TimeScale.Scale(sweepEvery) - now.Sub(s.sweptAt)
	if at, ok := s.timers.next(); ok {
		d = min(d, at.Sub(now))
	}
	if s.sched.Imbalanced() {
		d = min(d, s.stealAt.Sub(now))
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
	every := s.cfg.TimeScale.Scale(sweepEvery)
	if b.now.Sub(s.sweptAt) < every || !b.room() {
		return
	}
	gap := b.now.Sub(s.sweptAt) - every
	s.sweptAt = b.now
	if gap > s.cfg.TimeScale.Scale(pauseGap) {
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
		if v, ok := s.view.Task(t.task); ok && v.DueMS == t.due { // else an update gave it another time
			b.draft.Due(fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt})
		}
	case timerQueue:
		if v, _ := s.view.Task(t.task); v.State == fsm.Pending && v.Attempt == t.attempt && v.NotBefore == t.due {
			b.draft.Do(&fsm.FailTask{Task: t.task, Error: "queue time-out: no worker took it in time"})
			s.stale++
		}
	case timerDeadline:
		s.fireDeadline(b, t.task.Job)
	case timerLease:
		a := fsm.AttemptRef{TaskRef: t.task, Attempt: t.attempt}
		if o, ok := s.orphans[a]; ok && !b.now.Before(o.until) {
			s.forgetOrphan(a)
			s.watch.forget(a)
			b.draft.Lose(fsm.HeldAttempt{AttemptRef: a, Worker: o.worker})
		}
	case timerUpload:
		b.draft.Do(&fsm.DropUpload{Job: t.task.Job})
	}
}

// fireDeadline ends a job whose time is over. A timer may be too early: it may be
// from before a retry of the job, or the wall clock may have been set back.
func (s *Sequencer) fireDeadline(b *batch, id fsm.JobID) {
	job, ok := s.view.Job(id)
	switch {
	case !ok || job.State.Terminal() || job.CleaningUp():
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
		w.deadline = later(w.deadline, now.Add(s.cfg.LivenessTimeout))
		for i := range w.held.list {
			w.held.list[i].forgive(moment(gap))
		}
	}
}

// forgive gives an attempt time that it did not have.
func (x *held) forgive(gap moment) {
	x.given += gap
	if x.began != 0 {
		x.began += gap
		x.beat += gap
	}
	if x.drained != 0 {
		x.drained += gap
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sweepWorkers gives up those that were silent for too long, in the order of
// their numbers: what is written into the log follows from what was heard.
func (s *Sequencer) sweepWorkers(b *batch) {
	if b.now.Before(s.silentAt) {
		return
	}
	var silent, away []*worker // with and without a session
	s.silentAt = b.now.Add(s.cfg.LivenessTimeout)
	for _, w := range s.workers {
		limit := w.deadline
		if w.session != nil {
			limit = later(limit, w.session.LastContact().Add(s.cfg.LivenessTimeout))
		}
		switch {
		case b.now.Before(limit):
			s.mayBeSilent(limit)
		case w.session != nil:
			silent = append(silent, w)
		case b.now.Before(s.heldOffUntil(w)):
			s.silentAt = time.Time{}
		default:
			away = append(away, w)
		}
	}
	if len(silent)+len(away) > 0 {
		s.silentAt = time.Time{} // they may be more than have room
	}
	byNumber := func(a, b *worker) int { return cmp.Compare(a.id, b.id) }
	slices.SortFunc(silent, byNumber)
	slices.SortFunc(away, byNumber)
	var gone departures
	defer gone.tell(s.cfg.Logger)
	for _, w := range away {
		if b.room() {
			s.lost(b, w, &gone)
		}
	}
	if s.doubts(b.now, silent) {
		return
	}
	for _, w := range silent {
		if b.room() {
			s.lost(b, w, &gone)
		}
	}
}

// mayBeSilent says that a worker may have been silent for too long at a moment, and
// not before: whoever is heard has more time. So thousands of workers that beat are
// looked at once in a while and not at every sweep.
func (s *Sequencer) mayBeSilent(at time.Time) {
	if at.Before(s.silentAt) {
		s.silentAt = at
	}
}

// AllowReconnectsUntil says that a worker was told to come back later, at the latest then: the
// leader lets them in one after the other. Until they had the time to, those that
// have no session are not given up.
func (s *Sequencer) AllowReconnectsUntil(until time.Time) {
	to := int64(until.Sub(s.madeAt))
	for {
		known := s.heldOff.Load()
		if to <= known || s.heldOff.CompareAndSwap(known, to) {
			return
		}
	}
}

// heldOffMost is how much longer a worker without a session has for being held off.
const heldOffMost = 30 * time.Second

// heldOffUntil is how long a worker has to come back because it may have been told
// to come later.
func (s *Sequencer) heldOffUntil(w *worker) time.Time {
	known := s.heldOff.Load()
	if known == 0 {
		return time.Time{}
	}
	until, most := s.madeAt.Add(time.Duration(known)).Add(s.cfg.LivenessTimeout), w.deadline.Add(s.cfg.TimeScale.Scale(heldOffMost))
	if until.After(most) {
		return most
	}
	return until
}

// doubts reports whether so many workers fell silent at once, without a word of
// their connections' end, that this replica suspects itself first: they get their
// time once more.
func (s *Sequencer) doubts(now time.Time, silent []*worker) bool {
	if len(silent) < 3 || 2*len(silent) <= len(s.workers) || now.Sub(s.doubtAt) < 2*s.cfg.LivenessTimeout {
		return false
	}
	s.cfg.Logger.Warn("most workers fell silent together: they get their time once more", "silent", len(silent), "workers", len(s.workers))
	s.doubtAt = now
	for _, w := range silent {
		w.deadline = now.Add(s.cfg.LivenessTimeout)
	}
	return true
}

// overdue is an attempt whose time is over.
type overdue struct {
	w    *worker
	x    held
	text string // "": its worker has neither begun nor ended it

	drained bool // it is to end because its worker drains
}

// sweepAttempts ends attempts whose time is over and that their worker, silent
// about them or slow, has not ended itself.
func (s *Sequencer) sweepAttempts(b *batch) {
	var list []overdue
	for _, w := range s.workers {
		if w.session == nil {
			continue // its attempts are judged when it is back, or given up with it
		}
		drained := s.drainedBy(b, w.id)
		for i := range w.held.list {
			x := &w.held.list[i]
			switch text, over := s.overtime(b.at, x); {
			case x.stopped:
			case drained || x.drained != 0:
				list = append(list, overdue{w: w, x: *x, drained: true})
			case over:
				list = append(list, overdue{w: w, x: *x, text: text})
			}
		}
	}
	slices.SortFunc(list, func(a, b overdue) int { return compareAttempts(a.x.AttemptRef, b.x.AttemptRef) })
	for _, o := range list {
		switch {
		case !b.room():
			return
		case o.drained:
			s.sweepDrained(b, o.w, o.x.AttemptRef)
		default:
			s.endOverdue(b, o)
		}
	}
}

// overtime says whether an attempt's time is over, and why.
func (s *Sequencer) overtime(now moment, x *held) (text string, over bool) {
	if x.stopped {
		return "", false
	}
	if x.began == 0 {
		// Its own time-out may be shorter than the start time-out is long: an
		// attempt that began within the last report is judged by both.
		return "", now.since(x.given) > s.cfg.StartTimeout
	}
	p := s.policy(x.TaskRef)
	switch {
	case p.runTimeout > 0 && now.since(x.began) > p.runTimeout+s.cfg.TimeoutSlack:
		return fmt.Sprintf("time-out: ran for more than %v", p.runTimeout), true
	case p.beatTimeout > 0 && now.since(x.beat) > p.beatTimeout+s.cfg.TimeoutSlack:
		return fmt.Sprintf("heartbeat time-out: no progress for more than %v", p.beatTimeout), true
	}
	return "", false
}

func (s *Sequencer) endOverdue(b *batch, o overdue) {
	item := fsm.HeldAttempt{AttemptRef: o.x.AttemptRef, Worker: o.w.id}
	s.stopHeld(b, o.w, o.x.AttemptRef, dtaskv1.StopReason_STOP_REASON_TIMED_OUT)
	if o.text == "" {
		s.cfg.Totals.Requeues.Add(1)
		b.draft.Requeue(item, false)
		return
	}
	took := uint32(b.at.since(o.x.began).Milliseconds()) //nolint:gosec // 49 days are enough
	s.fail(b, item, took, backoff.Failure{Kind: backoff.Timeout}, false, o.text)
}

// forgetOld removes what is too old by the wall clock.
func (s *Sequencer) forgetOld(b *batch) {
	if keys := s.view.ExpiredKeys(s.keyShard, b.draft.NowMS(), 500); len(keys) > 0 {
		b.draft.Do(&fsm.ForgetKeys{Keys: keys})
	}
	s.forgetResults(b)
	if s.keyShard == 0 {
		s.forgetWorkers(b)
	}
}

// housekeeping removes what is kept no longer, a little at each sweep.
func (s *Sequencer) housekeeping(b *batch) {
	if s.cfg.ClockAgrees() {
		s.forgetOld(b)
	}
	s.keyShard = (s.keyShard + 1) % fsm.KeyShards
	s.archiveJobs(b)
	s.clean()
	s.gauge()
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
		if w.State == fsm.WorkerDown && w.DownSince < oldest && len(ids) < 1000 && s.view.LiveAttempts(w.ID) == 0 {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) > 0 {
		b.draft.Do(&fsm.ForgetWorkers{IDs: ids})
	}
}
