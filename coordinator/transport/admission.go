package transport

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Admission holds the rules by which both sides of a connection accept each other:
//
//   - equal cluster ids pass; different ones never do;
//   - a side that does not know its cluster yet is accepted only if the other side has
//     it among its own --peers;
//   - a server id whose instance is known is refused with any other instance: it may be
//     a wiped replica that would vote twice in one term;
//   - a server whose build does not support the cluster's level is refused: it would halt;
//   - no server connects to itself.
type Admission struct {
	// Self returns this server's preface, without a target.
	Self func() Preface
	// Peers are the ids of the servers that the operator named. Optional.
	Peers []string
	// KnownInstance returns the instance that the replicated state has for a server id.
	// Optional. It is called from many goroutines and must not block.
	KnownInstance func(serverID string) (instance string, known bool)
}

// RefusedError reports that the cluster, or one of its servers, refuses this replica.
// If the cluster does, the process should exit with the error's text.
type RefusedError struct {
	ServerID string
	Reason   string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("replica %s is refused: %s", e.ServerID, e.Reason)
}

// OtherInstanceError returns the RefusedError of an empty data directory whose server
// id is known with another instance.
func OtherInstanceError(serverID string) *RefusedError {
	return &RefusedError{ServerID: serverID, Reason: fmt.Sprintf("this data directory is new, but the cluster knows server id %s "+
		"with another instance: start it with its old data directory, or with --auto-rejoin to return under a new server id", serverID)}
}

// acceptDialer checks a server that dialed this one.
func (a *Admission) acceptDialer(peer Preface) error {
	own := a.Self()
	if peer.Target != own.ServerID {
		return fmt.Errorf("this is server %s, not %s", own.ServerID, peer.Target)
	}
	return a.accept(own, peer)
}

// accept checks the other side of a connection, whichever side dialed.
func (a *Admission) accept(own, peer Preface) error {
	if peer.ServerID == own.ServerID {
		return fmt.Errorf("server id %s is this server's own", peer.ServerID)
	}
	switch {
	case own.ClusterID == "" || peer.ClusterID == "":
		if !slices.Contains(a.Peers, peer.ServerID) {
			return fmt.Errorf("server %s is not among the peers of %s, and one of the two does not know its cluster yet", peer.ServerID, own.ServerID)
		}
	case own.ClusterID != peer.ClusterID:
		return fmt.Errorf("server %s belongs to cluster %s, server %s to cluster %s", peer.ServerID, peer.ClusterID, own.ServerID, own.ClusterID)
	}
	if err := errors.Join(checkLevel(own.Levels.Cluster, peer), checkLevel(peer.Levels.Cluster, own)); err != nil {
		return err
	}
	if a.KnownInstance != nil {
		if known, ok := a.KnownInstance(peer.ServerID); ok && known != peer.Instance {
			return OtherInstanceError(peer.ServerID)
		}
	}
	return nil
}

// checkLevel returns an error if a server's build does not support the level of a cluster. A server that has
// not applied the whole log knows a lower level than the cluster's, never a higher one.
func checkLevel(cluster uint32, p Preface) error {
	if cluster <= max(p.Levels.Max, 1) {
		return nil
	}
	return errors.New(LevelText(p.ServerID, p.Levels, cluster))
}

// LevelText is the reason for refusing a server whose build does not support the level of
// a cluster.
func LevelText(serverID string, l Levels, cluster uint32) string {
	return fmt.Sprintf("server %s runs dtask %s, which supports feature levels up to %d, and the cluster is at level %d: "+
		"start it with a newer version", serverID, cmp.Or(l.Version, "of an unknown version"), max(l.Max, 1), cluster)
}
