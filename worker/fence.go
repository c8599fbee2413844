package worker

import (
	"cmp"
	"sync"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fence holds the highest (epoch, term) that this process has seen, and the
// cluster. It is in memory only: a new process trusts the first leader that it
// connects to.
type fence struct {
	mu      sync.Mutex // guards the rest
	cluster string     // empty until the first message of a leader
	epoch   uint64
	term    uint64
}

// admit stores the fence of a message, or returns *foreignClusterError or
// errDeposed if the message must have no effect.
func (f *fence) admit(m *dtaskv1.Fence) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster != "" && m.GetClusterId() != "" && m.GetClusterId() != f.cluster {
		return &foreignClusterError{cluster: m.GetClusterId()}
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

// expect sets the cluster of a member: other clusters are foreign from the first message.
func (f *fence) expect(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster = cluster
}

// message returns the fence for the worker's own messages.
func (f *fence) message() *dtaskv1.Fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.Fence{ClusterId: f.cluster, Epoch: f.epoch, Term: f.term}
}

// clusterID returns the cluster's ID; empty before the first session.
func (f *fence) clusterID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster
}
