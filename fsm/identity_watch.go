package fsm

import "sync"

// An IdentityWatch signals that identities, join tokens, roots or pinned keys have
// changed, so that a replica ends the connections of what was revoked without polling.
type IdentityWatch struct {
	// Changed receives after an entry that changed any of them, and after a snapshot was
	// restored. Size 1: a signal that was not received yet covers later changes. There may
	// be nothing new. Changes before WatchIdentities returned are not signaled, so start
	// watching first and read the state then.
	Changed <-chan struct{}

	changed chan struct{}
	set     *identityWatches
}

// identityWatches are those of a machine. They are not part of the replicated state.
type identityWatches struct {
	mu  sync.Mutex // guards all; locked after the machine
	all map[*IdentityWatch]struct{}
}

// WatchIdentities starts a watch, which the caller must close.
func (m *Machine) WatchIdentities() *IdentityWatch {
	c := make(chan struct{}, 1)
	w := &IdentityWatch{Changed: c, changed: c, set: &m.identityWatches}
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	if w.set.all == nil {
		w.set.all = make(map[*IdentityWatch]struct{})
	}
	w.set.all[w] = struct{}{}
	return w
}

// Close ends the watch. It may be called twice.
func (w *IdentityWatch) Close() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	delete(w.set.all, w)
}

// signal signals to all watches.
func (s *identityWatches) signal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// unordered: signals change no state
	for w := range s.all {
		signal(w.changed)
	}
}
