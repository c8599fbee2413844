package raftnode

import (
	"fmt"
	"slices"
)

// admission is the rule by which both sides of a connection judge each other:
//
//   - equal cluster ids pass; different ones never do;
//   - a side that does not know its cluster yet is believed only if the other
//     names it among its own --peers;
//   - a server id whose instance is known is refused with any other instance: it
//     may be a wiped replica that would vote twice in one term;
//   - nobody talks to itself.
type admission struct {
	identity      func() Identity
	peers         []Server
	knownInstance func(serverID string) (string, bool)
	admit         func(Preface) error
}

// accept judges a dialler.
func (a *admission) accept(peer Preface) error {
	own := a.identity()
	if peer.Target != own.ServerID {
		return fmt.Errorf("this is server %s, not %s", own.ServerID, peer.Target)
	}
	return a.judge(own, peer)
}

// judge judges either side.
func (a *admission) judge(own Identity, peer Preface) error {
	if peer.ServerID == own.ServerID {
		return fmt.Errorf("server id %s is this server's own", peer.ServerID)
	}
	switch {
	case own.ClusterID == "" || peer.ClusterID == "":
		named := slices.ContainsFunc(a.peers, func(s Server) bool { return s.ID == peer.ServerID })
		if !named {
			return fmt.Errorf("server %s is not among the peers of %s, and one of the two does not know its cluster yet", peer.ServerID, own.ServerID)
		}
	case own.ClusterID != peer.ClusterID:
		return fmt.Errorf("server %s belongs to cluster %s, server %s to cluster %s", peer.ServerID, peer.ClusterID, own.ServerID, own.ClusterID)
	}
	if a.knownInstance != nil {
		if known, ok := a.knownInstance(peer.ServerID); ok && known != peer.Instance {
			return OtherInstanceError(peer.ServerID)
		}
	}
	if a.admit != nil {
		return a.admit(peer)
	}
	return nil
}
