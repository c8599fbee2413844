package worker

import (
	"cmp"
	"sync"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fence remembers the highest (epoch, term) that this process has seen, and of
// which cluster. It is in memory only: a new process believes the first leader
// that it meets.
type fence struct {
	mu      sync.Mutex // guards all below
	cluster string     // empty until the first message of a leader
	epoch   uint64
	term    uint64
}

// admit reports whether a message with this fence may have an effect, and
// remembers it if it is higher than the ones before. The error is
// errForeignCluster or errDeposed.
func (f *fence) admit(m *dtaskv1.Fence) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster != "" && m.GetClusterId() != "" && m.GetClusterId() != f.cluster {
		return errForeignCluster
	}
	older := cmp.Or(cmp.Compare(m.GetEpoch(), f.epoch), cmp.Compare(m.GetTerm(), f.term)) < 0
	if older {
		return errDeposed
	}
	f.epoch, f.term = m.GetEpoch(), m.GetTerm()
	if f.cluster == "" {
		f.cluster = m.GetClusterId()
	}
	return nil
}

// message is what the worker's own messages carry.
func (f *fence) message() *dtaskv1.Fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.Fence{ClusterId: f.cluster, Epoch: f.epoch, Term: f.term}
}

// clusterID is empty until a leader was met.
func (f *fence) clusterID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster
}
