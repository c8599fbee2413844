package transport

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

// The reasons for which a connection between replicas is refused, for metrics.
const (
	reasonCertificate = "certificate" // the peer that was dialed has no certificate of that server
	reasonServerID    = "server_id"   // it claims, or wants, another server id
	reasonKey         = "key"         // its key is not the one that is recorded
	reasonRemoved     = "removed"
	reasonCluster     = "cluster"
	reasonInstance    = "instance"
	reasonLevel       = "level"
	reasonPreface     = "preface" // it speaks something else, or ends the connection
	reasonByPeer      = "by_peer" // it refuses this replica
)

var refusalReasons = []string{
	reasonCertificate, reasonServerID, reasonKey, reasonRemoved, reasonCluster, reasonInstance, reasonLevel, reasonPreface, reasonByPeer,
}

// refusal is why a peer is refused.
type refusal struct {
	reason string
	err    error
}

// Error implements error.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.err }

func refusedFor(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Errorf(format, args...)}
}

// reasonOf returns the reason in the error of a connection.
func reasonOf(err error) string {
	if isAlert(err) {
		return reasonByPeer
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.reason
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return reasonByPeer
	}
	return reasonPreface
}

// isAlert reports whether the other side ended the handshake: it refuses the certificate.
func isAlert(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error"
}

// isUnreachable reports whether an error is the network's. An alert of TLS looks like one.
func isUnreachable(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network && !isAlert(err)
}

// refusals counts what is refused by reason: connections of any kind by a Mux, and peers
// by a Transport. The map is never modified.
type refusals map[string]*atomic.Uint64

func newRefusals(reasons []string) refusals {
	r := make(refusals, len(reasons))
	for _, reason := range reasons {
		r[reason] = new(atomic.Uint64)
	}
	return r
}

// counts returns how much was refused for each reason.
func (r refusals) counts() map[string]uint64 {
	out := make(map[string]uint64, len(r))
	for reason, n := range r {
		out[reason] = n.Load()
	}
	return out
}
