package logstore

import "sync"

// newestIndex is the index of the last entry passed to a log, stored or not. The zero
// value is ready to use.
type newestIndex struct {
	mu      sync.Mutex // guards what follows
	index   uint64
	changed chan struct{} // closed by the next set; nil while nothing waits for it
}

// set records an entry. A follower's index may decrease.
func (n *newestIndex) set(index uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.index = index
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// get returns the index, and a channel that the next set closes.
func (n *newestIndex) get() (index uint64, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.index, n.changed
}
