package sequencer

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/fsm"
)

// A clean-up task begins when all ordinary tasks of its job have ended. For the
// state an attempt that was cancelled has ended at once; its worker may still be
// killing it, and it may still write to what is about to be cleaned up. So a
// clean-up task waits until no worker says any more that it holds such an
// attempt, or has been given up, but no longer than a start time-out: what
// cannot be killed must not keep a job from its end.

// heldBack reports whether a clean-up task that has just become ready has to
// wait, and sees to it that it is enqueued later.
func (s *Sequencer) heldBack(b *batch, ref fsm.TaskRef) bool {
	if _, waits := s.cleanUps[ref]; waits {
		return true
	}
	if !s.kills(ref.Job) {
		return false
	}
	s.cleanUps[ref] = b.now.Add(s.cfg.StartTimeout)
	return true
}

// kills reports whether a worker holds an attempt of a job that it was told to
// end.
func (s *Sequencer) kills(id fsm.JobID) bool {
	for _, w := range s.workers {
		if slices.ContainsFunc(w.held.list, func(x held) bool { return x.Job == id && x.stopped }) {
			return true
		}
	}
	return false
}

// letCleanUp enqueues the clean-up tasks that need not wait any longer, in order.
func (s *Sequencer) letCleanUp(b *batch) {
	if len(s.cleanUps) == 0 {
		return
	}
	waiting := make([]fsm.TaskRef, 0, len(s.cleanUps))
	for ref := range s.cleanUps {
		waiting = append(waiting, ref)
	}
	slices.SortFunc(waiting, func(x, y fsm.TaskRef) int { return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Index, y.Index)) })
	kills := make(map[fsm.JobID]bool)
	for _, ref := range waiting {
		if _, looked := kills[ref.Job]; !looked {
			kills[ref.Job] = s.kills(ref.Job)
		}
		if kills[ref.Job] && b.now.Before(s.cleanUps[ref]) {
			continue
		}
		delete(s.cleanUps, ref)
		if t, ok := s.view.Task(ref); ok && t.State == fsm.Pending {
			s.enqueue(b, ref, &t)
		}
	}
}
