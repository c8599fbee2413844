package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// trust is what replicas, workers and clients trust: the roots of the cluster's CA, and
// the public keys of the replicas.
type trust struct {
	roots   [][]byte     // DER
	rootsMS int64        // when they were set; 0 = never
	pins    []PinReplica // ascending by server id
}

// Trust returns the root certificates of the cluster's CA in DER, at most 4; nil before
// the first SetTrust. Shared: never change it.
func (t *trust) Trust() [][]byte { return t.roots }

// TrustMS is when the roots were set; 0 = never.
func (t *trust) TrustMS() int64 { return t.rootsMS }

// ReplicaKeys returns the SHA-256 of the public keys that a replica may have, 1 or 2; nil
// if they are unknown. Shared: never change it.
func (t *trust) ReplicaKeys(serverID string) [][sha256Len]byte {
	at, found := t.pin(serverID)
	if !found {
		return nil
	}
	return t.pins[at].KeyHashes
}

func (t *trust) pin(serverID string) (at int, found bool) {
	return slices.BinarySearchFunc(t.pins, serverID, func(p PinReplica, id string) int { return strings.Compare(p.ServerID, id) })
}

// trust writes the frame of the roots, the pins, and the numbers of the next identity and
// join token. A cluster that never had any of them has no such frame, so that the form of
// its snapshots is that of builds without identities.
func (f *frameWriter) trust(s *State) {
	if s.hasNoIdentities() {
		return
	}
	s.trustFields(&f.c)
	f.frame(frameTrust)
}

// hasNoIdentities reports whether the cluster never had an identity, a join token, a root
// or a pin.
func (s *State) hasNoIdentities() bool {
	return s.identities.next == 1 && s.joinTokens.next == 1 && len(s.trust.roots) == 0 && len(s.trust.pins) == 0
}

func (s *State) trustFields(c *coder) {
	number(c, &s.identities.next)
	number(c, &s.joinTokens.next)
	list(c, &s.trust.roots, c.clone)
	c.i64(&s.trust.rootsMS)
	list(c, &s.trust.pins, func(p *PinReplica) { p.fields(c) })
}

// trust reads the frame, which is written only once, and only if there is something in it.
func (f *frameReader) trust(d *decoder) {
	s := f.s
	again := !s.hasNoIdentities()
	s.trustFields(&coder{d: d})
	if d.err == nil && (again || s.hasNoIdentities() || s.identities.next == 0 || s.joinTokens.next == 0) {
		d.fail(errors.New("empty or second frame of the trust"))
	}
}

// check checks that the roots and pins are some that operations can set.
func (t *trust) check() error {
	roots := SetTrust{t.roots, t.rootsMS}
	if len(t.roots) == 0 && t.rootsMS != 0 || len(t.roots) > 0 && roots.malformed() {
		return errors.New("malformed roots")
	}
	for i := range t.pins {
		if p := &t.pins[i]; p.malformed() || i > 0 && t.pins[i-1].ServerID >= p.ServerID {
			return fmt.Errorf("malformed or unsorted keys of replica %q", p.ServerID)
		}
	}
	if len(t.pins) > maxPins {
		return fmt.Errorf("keys of %d replicas", len(t.pins))
	}
	return nil
}
