package transport

import (
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/internal/connlimit"
)

// Limits bounds the gRPC connections of a Mux. Those of replicas, which have proved by their
// certificates what they are, neither count nor are refused: whatever else fills the port,
// the cluster works.
type Limits struct {
	// PerAddress bounds the connections of one other machine, see connlimit.Host; 0 = no
	// limit.
	PerAddress int
	// Total returns the bound of all connections. It is called for each connection and must
	// not block. nil = no limit.
	Total func() int
}

// Limit sets the limits. It must be called before Run.
func (m *Mux) Limit(l Limits) { m.limits = l }

// Served returns how many gRPC connections are open, without those of replicas.
func (m *Mux) Served() int { return m.served.Count() }

// The reasons for closing connections without serving them, beside those of connlimit.
const (
	refusedInvalid    = "invalid"    // no handshake, no protocol of this port, or too slow
	refusedHandshakes = "handshakes" // others came while it was in its handshake
)

var portReasons = []string{refusedInvalid, refusedHandshakes, string(connlimit.Address), string(connlimit.Total)}

// Refused returns how many connections were closed without being served, by reason.
func (m *Mux) Refused() map[string]uint64 { return m.refused.counts() }

// limitError is why a connection is not served.
type limitError struct{ reason connlimit.Reason }

// Error implements error.
func (e *limitError) Error() string { return fmt.Sprintf("too many connections (limit: %s)", e.reason) }

// refusalOf returns the reason that an error of dispatch counts as.
func refusalOf(err error) string {
	if limited, ok := errors.AsType[*limitError](err); ok {
		return string(limited.reason)
	}
	return refusedInvalid
}

// refuse closes a connection and counts it. It logs what a limit refuses, at a limited rate
// whatever the number of machines that connect.
func (m *Mux) refuse(conn net.Conn, reason string) {
	m.refused[reason].Add(1)
	_ = conn.Close() // it is refused: the error of closing does not matter
	if reason == refusedInvalid {
		return
	}
	if suppressed, ok := m.limiter.Allow(reason); ok {
		m.log.Warn("connection refused because of a limit", "reason", reason, "remote", conn.RemoteAddr(), "suppressed", suppressed)
	}
}

// limitNotices are what the clients of refused connections show their users.
var limitNotices = map[connlimit.Reason]string{
	connlimit.Address: "too many connections from your address: close some, or set dtaskd --max-connections-per-address",
	connlimit.Total:   "this coordinator has as many connections as it can serve: retry later",
}

// serve passes an HTTP/2 connection on, whose first bytes were read, unless there are too
// many. The client of a refused connection gets the reason, which its user sees.
func (m *Mux) serve(conn net.Conn, host string, isReplica bool, first []byte) error {
	release := func() {}
	if !isReplica {
		total := 0
		if m.limits.Total != nil {
			total = m.limits.Total()
		}
		var refused connlimit.Reason
		if release, refused = m.served.Open(host, m.limits.PerAddress, total); refused != "" {
			m.rejectCalls(conn, first, codes.Unavailable, limitNotices[refused])
			return &limitError{refused}
		}
	}
	err := conn.SetDeadline(time.Time{})
	if err == nil {
		err = m.grpc.deliver(&replayConn{Conn: conn, prefix: first, release: release})
	}
	if err != nil {
		release()
	}
	return err
}
