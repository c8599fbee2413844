package sequencer

import "time"

// idleDetector decides when the view should share its memory with the
// replicated state.
type idleDetector struct {
	entries uint64 // of the view at the last sweep
	shared  uint64 // of the view when it was last replaced by a fork
}

// idle reports whether the view has not changed since the last call, and
// differs from the last one that was shared. It is called once per sweep
// interval.
func (d *idleDetector) idle(entries uint64) bool {
	unchanged := entries == d.entries
	d.entries = entries
	return unchanged && entries != d.shared
}

// shareMemory replaces the view by a new fork of the replicated state if
// nothing has changed for a sweep interval. View and state are equal then, and
// what each has written for itself is in memory only once afterwards: this saves
// half of what the records of a million pending tasks take. It is not done
// under load, because after a fork both sides copy what they write first. The
// caller has taken a slot of the pipeline, and must find it the only one.
func (s *Sequencer) shareMemory() {
	if s.sweeps.until(time.Now()) > 0 {
		return
	}
	entries := s.view.Entries()
	if !s.idle.idle(entries) || len(s.pipe.slots) > 1 {
		return
	}
	fork, _ := s.cfg.Machine.Fork()
	if fork.Digest() != s.view.Digest() {
		return // it has entries of another leader: this term is about to end
	}
	s.view, s.idle.shared = fork, entries
}
