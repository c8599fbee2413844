package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// maxSocketPath is the length of a path that every system accepts for a Unix socket.
const maxSocketPath = 100

// LocalConns returns a listener whose connections SocketCredentials take for those of
// administrators on this machine. Those of l must be a Unix socket's, which are checked by
// their user, or out of reach of everyone else.
func LocalConns(l net.Listener) net.Listener { return localListener{l} }

type localListener struct{ net.Listener }

// Accept implements net.Listener.
func (l localListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server looks at its type
	}
	return localConn{conn}, nil
}

// localConn is a connection of a localListener.
type localConn struct{ net.Conn }

// ListenSocket opens the Unix socket of this replica, which only its own user and root can
// use. It replaces a socket that an earlier process left: the caller has the lock of the
// data directory. The listener removes the file when it is closed.
func ListenSocket(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("path %s of the socket has %d characters, and can have %d: choose a shorter --data-dir", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replacing the socket: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the socket: %w", err)
	}
	// Until here, the mode is that of the umask. Connections that were made meanwhile are
	// checked by their user, like all others.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the socket: %w", err), l.Close())
	}
	return l, nil
}

// SocketInfo says that a connection came over the Unix socket, from this process's user or
// root.
type SocketInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (SocketInfo) AuthType() string { return "unix" }

// WithSocket returns credentials that accept connections of LocalConns and leave all
// others to next.
func WithSocket(next credentials.TransportCredentials) *SocketCredentials {
	return &SocketCredentials{next}
}

// SocketCredentials are the credentials of WithSocket.
type SocketCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *SocketCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	local, ok := conn.(localConn)
	if !ok {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	if unix, ok := local.Conn.(*net.UnixConn); ok {
		if err := checkPeerUser(unix); err != nil {
			return nil, nil, err
		}
	}
	return conn, SocketInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// Clone implements credentials.TransportCredentials.
func (c *SocketCredentials) Clone() credentials.TransportCredentials {
	return &SocketCredentials{c.TransportCredentials.Clone()}
}
