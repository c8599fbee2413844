package fsm

import (
	"slices"
	"strings"
)

// apply names the cluster.
// Rejects: WrongState if it has a name. A second copy is refused.
func (o *Cluster) apply(s *State, _ *Effects) Reason {
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

// apply records the instance of a server id.
// Rejects: WrongState if the id belongs to another instance, Malformed. A second
// copy changes nothing and is accepted.
func (o *Replica) apply(s *State, _ *Effects) Reason {
	i, found := slices.BinarySearchFunc(s.replicas, *o, func(a, b Replica) int { return strings.Compare(a.ServerID, b.ServerID) })
	switch {
	case found && s.replicas[i].Instance != o.Instance:
		return WrongState
	case found:
		return Accepted
	}
	if o.ServerID == "" || tooLong(o.ServerID, o.Instance) {
		return Malformed
	}
	s.replicas = slices.Insert(slices.Clone(s.replicas), i, *o)
	s.mixString(o.ServerID)
	s.mixString(o.Instance)
	return Accepted
}

// apply notes the leader of a new term.
// Rejects: OutOfOrder if the term is not above the last, Malformed.
func (o *LeaderStart) apply(s *State, _ *Effects) Reason {
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
