package sequencer

import "github.com/dtask/dtask/fsm"

// evictShare is which part of the table of results goes when it is full: to find
// the ones that expire first takes a look at all.
const evictShare = 64

// remember keeps the result of a pure task that has just completed, in the same
// entry. When the table is full, results that expire first make room.
func (s *Sequencer) remember(b *batch, ref fsm.TaskRef) {
	if j := s.info(ref.Job); j == nil || !j.pure {
		return
	}
	p := s.policy(ref)
	if p.reuse <= 0 {
		return
	}
	n, bytes := s.view.Results()
	if n >= s.cfg.MaxResults || bytes >= s.cfg.MaxResultBytes {
		b.draft.Do(&fsm.ForgetResults{Keys: s.view.ResultsByExpiry(1 + n/evictShare)})
	}
	expires := b.draft.NowMS() + p.reuse.Milliseconds()
	b.draft.Do(&fsm.RememberResults{Items: []fsm.RememberItem{{Task: ref, Expires: expires}}})
}

// reuse ends pure tasks with the results that were known when they became ready,
// and so on with what they release, as long as the entry has room. Those whose
// result has gone meanwhile wait for a worker like all others.
func (s *Sequencer) reuse(b *batch) {
	for len(s.reuses) > 0 && b.room() {
		ref := s.reuses[0]
		s.reuses = s.reuses[1:]
		if b.draft.Do(&fsm.ReuseResults{Tasks: []fsm.TaskRef{ref}}) == fsm.Accepted {
			s.cfg.Totals.Reuses.Add(1)
			s.absorb(b)
		} else if t, ok := s.view.Task(ref); ok && t.State == fsm.Pending {
			s.queue(b, ref, &t, s.numbered(ref.Job, t.Policy))
		}
	}
	if len(s.reuses) == 0 {
		s.reuses = nil // the memory of those before
	}
}

// forgetResults removes expired results, a part of them at each sweep.
func (s *Sequencer) forgetResults(b *batch) {
	if keys := s.view.ExpiredResults(s.keyShard, b.draft.NowMS(), 500); len(keys) > 0 {
		b.draft.Do(&fsm.ForgetResults{Keys: keys})
	}
}
