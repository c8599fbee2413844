package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/tlsconf"
)

// ServerCredentials returns the credentials of a gRPC server behind a Mux with TLS. The
// handshake is done before the server gets a connection; they pass on what it found out,
// so that handlers see the peer's certificate as credentials.TLSInfo.
func ServerCredentials() credentials.TransportCredentials { return serverCredentials{} }

type serverCredentials struct{}

var errServerOnly = errors.New("transport: credentials of a server only")

// ServerHandshake implements credentials.TransportCredentials.
func (serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	replay, _ := conn.(*replayConn)
	if replay == nil {
		return nil, nil, errors.New("transport: the connection is not from the mux")
	}
	secured, ok := replay.Conn.(*secureConn)
	if !ok {
		return nil, nil, errors.New("transport: the connection has no TLS")
	}
	return conn, credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info implements credentials.TransportCredentials.
func (serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (serverCredentials) OverrideServerName(string) error { return errServerOnly }

// PeerCredentials are the credentials of gRPC connections to other replicas. Closing a
// connection doesn't wait for the peer (see secureConn).
type PeerCredentials struct {
	credentials.TransportCredentials

	peers *peerConns
}

// ClientCredentials returns the credentials of connections that p verifies.
func ClientCredentials(p tlsconf.Peering) *PeerCredentials {
	return newPeerCredentials(p.GRPCClient(), p.Source)
}

func newPeerCredentials(cfg *tls.Config, source tlsconf.Source) *PeerCredentials {
	return &PeerCredentials{credentials.NewTLS(cfg), newPeerConns(source)}
}

// CloseUntrusted is that of Mux for the connections with these credentials. gRPC opens them
// again when they are used.
func (c *PeerCredentials) CloseUntrusted() (closed int) { return c.peers.CloseUntrusted() }

// ClientHandshake implements credentials.TransportCredentials.
func (c *PeerCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	before := c.peers.source()
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	aborted := abortedConn{Conn: conn, raw: raw}
	if proven, ok := info.(credentials.TLSInfo); ok {
		aborted.peer = c.peers.add(raw, proven.State, before)
	}
	return aborted, info, nil
}

// Clone implements credentials.TransportCredentials. The connections of both are the same
// set.
func (c *PeerCredentials) Clone() credentials.TransportCredentials {
	return &PeerCredentials{c.TransportCredentials.Clone(), c.peers}
}

// abortedConn is a TLS connection that is closed like a secureConn.
type abortedConn struct {
	net.Conn
	raw  net.Conn
	peer *tlsconf.OpenConn
}

// Close implements net.Conn.
func (c abortedConn) Close() error {
	c.peer.Leave()
	return c.raw.Close()
}
