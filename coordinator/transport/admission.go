package transport

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dtask/dtask/internal/tlsconf"
)

// Admission holds the rules by which both sides of a connection accept each other:
//
//   - equal cluster ids pass; different ones never do;
//   - a side that does not know its cluster yet is accepted only if the other side has
//     it among its own --peers;
//   - a server id whose instance is known is refused with any other instance: it may be
//     a wiped replica that would vote twice in one term;
//   - a server whose build does not support the cluster's level is refused: it would halt;
//   - a server that was removed from the cluster is refused;
//   - with TLS, the certificate must be the server's, with a key that is recorded for it,
//     if one is;
//   - no server connects to itself.
//
// A server that this one does not know is accepted: it may have been added, and may lead,
// while this one was away.
type Admission struct {
	// Self returns this server's preface, without a target.
	Self func() Preface
	// Peers are the ids of the servers that the operator named. Optional.
	Peers []string
	// KnownInstance returns the instance that the replicated state has for a server id.
	// Optional. It is called from many goroutines and must not block.
	KnownInstance func(serverID string) (instance string, known bool)
	// Removed reports whether a server was a member of the cluster and is not one any
	// more. Optional; called as KnownInstance.
	Removed func(serverID string) bool
	// Keys returns the SHA-256 of the public keys that the replicated state has for the
	// server id in a certificate; none if it is not recorded. Optional; called as
	// KnownInstance.
	Keys func(certified string) [][32]byte
}

// proof is what the TLS handshake has proved of a peer; zero without TLS.
type proof struct {
	certified string // server id in its certificate
	key       [32]byte
}

// checkProof refuses a peer that claims another server id than its certificate's, or has
// another key than the one that is recorded for it.
func (a *Admission) checkProof(p proof, peer Preface) error {
	switch {
	case p.certified == "":
		return nil
	case !tlsconf.Covers(p.certified, peer.ServerID):
		return refusedFor(reasonServerID, "server %s has the certificate of server %s: issue one for %s", peer.ServerID, p.certified, peer.ServerID)
	case a.Keys == nil:
		return nil
	}
	if keys := a.Keys(p.certified); len(keys) > 0 && !slices.Contains(keys, p.key) {
		return refusedFor(reasonKey, "server %s has another key than the cluster has recorded for %s: start it with the tls.key that it had, "+
			"or remove it and let it join again", peer.ServerID, p.certified)
	}
	return nil
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
		return refusedFor(reasonServerID, "this is server %s, not %s", own.ServerID, peer.Target)
	}
	return a.accept(own, peer)
}

// accept checks the other side of a connection, whichever side dialed.
func (a *Admission) accept(own, peer Preface) error {
	if peer.ServerID == own.ServerID {
		return refusedFor(reasonServerID, "server id %s is this server's own", peer.ServerID)
	}
	switch {
	case own.ClusterID == "" || peer.ClusterID == "":
		if !slices.Contains(a.Peers, peer.ServerID) {
			return refusedFor(reasonCluster, "server %s is not among the peers of %s, and one of the two does not know its cluster yet", peer.ServerID, own.ServerID)
		}
	case own.ClusterID != peer.ClusterID:
		return refusedFor(reasonCluster, "server %s belongs to cluster %s, server %s to cluster %s", peer.ServerID, peer.ClusterID, own.ServerID, own.ClusterID)
	}
	if err := errors.Join(checkLevel(own.Levels.Cluster, peer), checkLevel(peer.Levels.Cluster, own)); err != nil {
		return &refusal{reasonLevel, err}
	}
	if a.Removed != nil && a.Removed(peer.ServerID) {
		return refusedFor(reasonRemoved, "server %s was removed from the cluster", peer.ServerID)
	}
	if a.KnownInstance != nil {
		if known, ok := a.KnownInstance(peer.ServerID); ok && known != peer.Instance {
			return &refusal{reasonInstance, OtherInstanceError(peer.ServerID)}
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
