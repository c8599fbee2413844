package logstore

import "sync"

// newest is the last entry that was given to a store, before it is on the disk. The
// zero value has seen none.
type newest struct {
	mu      sync.Mutex // guards what follows
	index   uint64
	changed chan struct{} // closed at the next set; nil while nobody waits for it
}

// set notes that an entry is being stored. A follower's index may go back.
func (n *newest) set(index uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.index = index
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// get returns the index, and a channel that is closed at the next set.
func (n *newest) get() (index uint64, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.index, n.changed
}
