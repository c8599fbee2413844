package session

import (
	"bytes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// offer is what workers should store of the cluster. It is immutable.
type offer struct {
	trust *dtaskv1.Trust
	hash  []byte // of the CAs, as workers report it
}

// OfferTrust sets the CAs and addresses that workers store. It sends them to all workers
// that have other CAs, now and when they connect.
func (s *Service) OfferTrust(trust *dtaskv1.Trust, hash []byte) {
	before := s.offered.Swap(&offer{trust, hash})
	if before != nil && bytes.Equal(before.hash, hash) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.open {
		if x.offerTrust() {
			x.slot.wake()
		}
	}
}

// Lacking returns how many workers are connected, and the names of those that have not
// stored the CAs with a hash.
func (s *Service) Lacking(hash []byte) (connected int, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.open {
		x.mu.Lock()
		stored := x.trusts
		x.mu.Unlock()
		if !bytes.Equal(stored, hash) {
			names = append(names, x.name)
		}
	}
	return len(s.open), names
}

// noteTrust records which CAs a worker says that it has stored.
func (x *session) noteTrust(hash []byte) {
	if len(hash) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trusts = hash
}

// offerTrust queues the CAs for a worker that stores CAs and has others. It reports
// whether it did.
func (x *session) offerTrust() bool {
	o := x.service.offered.Load()
	x.mu.Lock()
	defer x.mu.Unlock()
	if o == nil || len(x.trusts) == 0 || bytes.Equal(x.trusts, o.hash) {
		return false
	}
	x.trust = o.trust
	return true
}
