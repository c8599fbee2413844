package fsm

import (
	"slices"
	"strings"
)

// SetClusterID sets the id of the cluster. The first leader proposes it once.
type SetClusterID struct {
	ID string // 32 hexadecimal digits
}

func (*SetClusterID) kind() opKind { return 1 }

func (o *SetClusterID) fields(c *coder) { c.str(&o.ID) }

// apply sets the cluster's id.
// Rejects: WrongState if it is set, Malformed. A second copy is rejected.
func (o *SetClusterID) apply(s *State, _ *Effects) Reason {
	if s.clusterID != "" {
		return WrongState
	}
	if o.ID == "" || tooLong(o.ID) {
		return Malformed
	}
	s.clusterID = o.ID
	s.mixString(o.ID)
	return Accepted
}

// Replica records which instance (data directory) has a server id, at first
// contact. Another instance with the same id is refused from then on.
type Replica struct {
	ServerID, Instance string
	// Replaces is the server id that this one replaces, because the other's data
	// directory was lost; empty for all others. It is recorded once.
	Replaces string
	// LowWaterMark is a log index up to which this replica has stored every
	// committed entry. A data directory that ends below it is an old copy. It
	// only grows.
	LowWaterMark uint64
}

func (*Replica) kind() opKind { return 2 }

func (o *Replica) fields(c *coder) {
	c.str(&o.ServerID)
	c.str(&o.Instance)
	c.str(&o.Replaces)
	number(c, &o.LowWaterMark)
}

// apply records the instance of a server id, the id it replaces, and its
// low-water mark.
// Rejects: WrongState if the id belongs to another instance or replaces
// another id, Malformed.
// A second copy changes nothing and is accepted.
func (o *Replica) apply(s *State, _ *Effects) Reason {
	i, found := slices.BinarySearchFunc(s.replicas, *o, func(a, b Replica) int { return strings.Compare(a.ServerID, b.ServerID) })
	switch {
	case found:
		return s.amendReplica(i, o)
	case o.ServerID == "" || o.Replaces == o.ServerID || tooLong(o.ServerID, o.Instance, o.Replaces):
		return Malformed
	}
	s.replicas = slices.Insert(slices.Clone(s.replicas), i, *o)
	s.mixString(o.ServerID)
	s.mixString(o.Instance)
	s.mixString(o.Replaces)
	s.mix(o.LowWaterMark)
	return Accepted
}

func (s *State) amendReplica(i int, o *Replica) Reason {
	next := s.replicas[i]
	if next.Instance != o.Instance || (o.Replaces != "" && next.Replaces != "" && o.Replaces != next.Replaces) {
		return WrongState
	}
	if o.Replaces == o.ServerID || tooLong(o.Replaces) {
		return Malformed
	}
	if next.Replaces == "" {
		next.Replaces = o.Replaces
	}
	next.LowWaterMark = max(next.LowWaterMark, o.LowWaterMark)
	if next == s.replicas[i] {
		return Accepted
	}
	s.replicas = slices.Clone(s.replicas)
	s.replicas[i] = next
	s.mixString(o.ServerID)
	s.mixString(next.Replaces)
	s.mix(next.LowWaterMark)
	return Accepted
}

// StartTerm is the first operation of a term.
type StartTerm struct {
	Term     uint64
	ServerID string // of the leader
}

func (*StartTerm) kind() opKind { return 3 }

func (o *StartTerm) fields(c *coder) {
	number(c, &o.Term)
	c.str(&o.ServerID)
}

// apply records the leader of a new term.
// Rejects: OutOfOrder unless the term is above the last one, Malformed.
func (o *StartTerm) apply(s *State, _ *Effects) Reason {
	switch {
	case o.Term <= s.term:
		return OutOfOrder
	case tooLong(o.ServerID):
		return Malformed
	}
	s.term, s.leader = o.Term, o.ServerID
	s.event(Event{Kind: LeaderEvent, Number: o.Term, Name: o.ServerID})
	s.mix(o.Term)
	s.mixString(o.ServerID)
	return Accepted
}
