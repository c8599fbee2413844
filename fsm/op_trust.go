package fsm

import (
	"bytes"
	"slices"
)

// SetTrust replaces the root certificates of the cluster's CA.
type SetTrust struct {
	Roots [][]byte // DER, 1 to 4, different, each of at most 4 KiB
	AtMS  int64    // by the leader's clock
}

func (*SetTrust) kind() opKind { return 45 }

func (o *SetTrust) fields(c *coder) {
	list(c, &o.Roots, c.clone)
	c.i64(&o.AtMS)
}

// malformed reports whether the roots are missing, too many, too long, or repeated.
func (o *SetTrust) malformed() bool {
	if len(o.Roots) == 0 || len(o.Roots) > maxRoots || o.AtMS <= 0 {
		return true
	}
	for i, root := range o.Roots {
		if len(root) == 0 || len(root) > maxRoot ||
			slices.ContainsFunc(o.Roots[:i], func(other []byte) bool { return bytes.Equal(root, other) }) {
			return true
		}
	}
	return false
}

// apply replaces the roots. The certificates are not parsed.
// Rejects: Malformed.
// The same roots change nothing and are accepted.
func (o *SetTrust) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	if slices.EqualFunc(s.trust.roots, o.Roots, bytes.Equal) {
		return Accepted
	}
	s.mixTrust()
	s.trust.roots, s.trust.rootsMS = slices.Clone(o.Roots), o.AtMS
	s.mixTrust()
	s.identityChanges++
	return Accepted
}

func (s *State) mixTrust() {
	for _, root := range s.trust.roots {
		s.mixBytes(root)
	}
	s.mix(uint64(s.trust.rootsMS)) //nolint:gosec // bits only
}

// PinReplica records the public keys that a replica may have, in place of those before.
type PinReplica struct {
	ServerID  string
	KeyHashes [][sha256Len]byte // SHA-256, 1 or 2, different
}

func (*PinReplica) kind() opKind { return 46 }

func (o *PinReplica) fields(c *coder) {
	c.str(&o.ServerID)
	list(c, &o.KeyHashes, c.hash)
}

func (o *PinReplica) malformed() bool {
	return o.ServerID == "" || len(o.ServerID) > maxIdentityText || len(o.KeyHashes) == 0 || len(o.KeyHashes) > maxCredentials ||
		slices.Contains(o.KeyHashes, [sha256Len]byte{}) || len(o.KeyHashes) == 2 && o.KeyHashes[0] == o.KeyHashes[1]
}

// apply records the keys.
// Rejects: Malformed, LimitExceeded.
// A second copy changes nothing and is accepted.
func (o *PinReplica) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	t := &s.trust
	at, found := t.pin(o.ServerID)
	switch {
	case found && slices.Equal(t.pins[at].KeyHashes, o.KeyHashes):
		return Accepted
	case !found && len(t.pins) >= maxPins:
		return LimitExceeded
	}
	pin := PinReplica{o.ServerID, slices.Clone(o.KeyHashes)}
	t.pins = slices.Clone(t.pins) // replicas are few
	if found {
		s.mixPin(&t.pins[at])
		t.pins[at] = pin
	} else {
		t.pins = slices.Insert(t.pins, at, pin)
	}
	s.mixPin(&pin)
	s.identityChanges++
	return Accepted
}

func (d *digester) mixPin(p *PinReplica) {
	d.mixString(p.ServerID)
	for _, h := range p.KeyHashes {
		d.mixBytes(h[:])
	}
}
