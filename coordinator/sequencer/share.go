package sequencer

import "time"

// resting notices when the term has come to rest, to share memory.
type resting struct {
	entries uint64 // of the view at the last sweep
	shared  uint64 // of the view when it last shared its memory with the state
}

// share makes the view a fresh fork of the replicated state when nothing has changed
// for the time between two sweeps. View and state are equal then, and what each has
// written for itself is in memory once from here on, not twice: half of what the
// records of a million pending tasks take. It is not done under load: after a fork
// both copy what they write to first. The caller has the only token of the pipe when
// no entry is on its way.
func (s *Sequencer) share() {
	if time.Since(s.sweptAt) < s.cfg.TimeScale.Scale(sweepEvery) {
		return // a sweep is not due
	}
	entries := s.view.Entries()
	rested := entries == s.rest.entries
	s.rest.entries = entries
	if !rested || entries == s.rest.shared || len(s.pipe) > 1 {
		return
	}
	fork, _ := s.cfg.Machine.Fork()
	if fork.Digest() != s.view.Digest() {
		return // another leader's entries are in it: this term is about to end
	}
	s.view, s.rest.shared = fork, entries
}
