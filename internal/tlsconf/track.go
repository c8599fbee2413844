package tlsconf

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// Track returns credentials of a gRPC client whose connections are in the set while they are
// open.
func (o *OpenConns) Track(creds credentials.TransportCredentials) credentials.TransportCredentials {
	return trackedCredentials{creds, o}
}

// trackedCredentials are those of Track.
type trackedCredentials struct {
	credentials.TransportCredentials

	open *OpenConns
}

// ClientHandshake implements credentials.TransportCredentials.
func (c trackedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // gRPC passes it on as text
	}
	tracked := trackedConn{Conn: conn}
	if proven, ok := info.(credentials.TLSInfo); ok {
		tracked.open = c.open.Add(raw, proven.State)
		tracked.open.CloseUntrusted() // the CAs may have changed since the handshake
	}
	return tracked, info, nil
}

// Clone implements credentials.TransportCredentials. The connections of both are the same
// set.
func (c trackedCredentials) Clone() credentials.TransportCredentials {
	return trackedCredentials{c.TransportCredentials.Clone(), c.open}
}

// trackedConn is a connection with trackedCredentials.
type trackedConn struct {
	net.Conn

	open *OpenConn
}

// Close implements net.Conn.
func (c trackedConn) Close() error {
	c.open.Leave()
	return c.Conn.Close() //nolint:wrapcheck // for gRPC
}
