package fsm

import (
	"slices"
	"strings"
)

// apply names the cluster.
// Rejects: WrongState if it has a name. A second copy is refused.
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

// apply records the instance of a server id, whom it replaces, and its floor.
// Rejects: WrongState if the id belongs to another instance or replaces another id,
// Malformed. A second copy changes nothing and is accepted.
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

// apply notes the leader of a new term.
// Rejects: OutOfOrder if the term is not above the last, Malformed.
func (o *StartTerm) apply(s *State, _ *Effects) Reason {
	switch {
	case o.Term <= s.term:
		return OutOfOrder
	case tooLong(o.ServerID):
		return Malformed
	}
	s.term, s.leader = o.Term, o.ServerID
	s.mix(o.Term)
	s.mixString(o.ServerID)
	return Accepted
}
