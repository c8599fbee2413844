package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
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
		State:          secured.state,
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

// ClientCredentials returns the credentials of gRPC connections to other replicas, which
// cfg verifies. Closing a connection doesn't wait for the peer (see secureConn).
func ClientCredentials(cfg *tls.Config) credentials.TransportCredentials {
	return clientCredentials{credentials.NewTLS(cfg)}
}

type clientCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return abortedConn{conn, raw}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	return clientCredentials{c.TransportCredentials.Clone()}
}

// abortedConn is a TLS connection that is closed like a secureConn.
type abortedConn struct {
	net.Conn
	raw net.Conn
}

// Close implements net.Conn.
func (c abortedConn) Close() error { return c.raw.Close() }
