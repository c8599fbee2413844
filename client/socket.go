package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/internal/loopback"
)

// socketPrefix starts the address of a coordinator's Unix socket.
const socketPrefix = "unix:"

// maxShown bounds, in bytes, what errors show of an address that is not one. Longer ones
// may have a secret.
const maxShown = 64

// socketPath returns the path of an address that is a Unix socket.
func socketPath(addr string) (path string, ok bool) { return strings.CutPrefix(addr, socketPrefix) }

// checkAddress checks the form of an address, and that it may be used in plaintext if
// plaintext is set.
func checkAddress(addr string, plaintext bool) error {
	if path, ok := socketPath(addr); ok {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("invalid address %q: the path of a Unix socket must be absolute, as in unix:/run/dtask/dtaskd.sock", addr)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil && len(addr) > maxShown:
		return errors.New("invalid address: must be HOST:PORT, or unix:PATH") // it may be a join string
	case err != nil || host == "" || port == "":
		return fmt.Errorf("invalid address %q: must be HOST:PORT, or unix:PATH", addr)
	case plaintext && !loopback.Is(addr):
		return fmt.Errorf("invalid address %q: %w", addr, errPlaintext)
	}
	return nil
}

// errPlaintext is the reason for which an address that is not on this machine is refused
// in plaintext.
var errPlaintext = errors.New("not on this machine, and this client has no CA of a cluster to secure the connection: log in with dtaskctl login, or set --ca-file")

// target returns what gRPC passes through to the dialer as addr. Paths may have
// characters that a URL can't have.
func target(addr string) string {
	return (&url.URL{Scheme: "passthrough", Path: "/" + addr}).String()
}

// transportOptions returns how the connection to an address is secured. A Unix socket
// doesn't leave the machine, and its server knows who is at the other end.
func (c *Client) transportOptions(addr string) []grpc.DialOption {
	if _, ok := socketPath(addr); ok {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost")}
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(notingCredentials{c.cfg.Credentials, addr, &c.handshakes})}
}

// secured reports whether connections, except those to sockets, are secured.
func (c *Client) secured() bool { return c.cfg.Credentials.Info().SecurityProtocol != "insecure" }

// isLocalOnly reports whether a client at an address can't follow a coordinator to the
// leader: it came through a socket, and has nothing that other machines would accept.
func (c *Client) isLocalOnly(addr string) bool {
	_, socket := socketPath(addr)
	return socket && c.cfg.Credentials.Info().SecurityProtocol == insecure.NewCredentials().Info().SecurityProtocol
}

// notHere returns the error of a loop whose coordinator does not lead, and whose caller
// may only use the socket of one machine.
func (w *retryLoop) notHere(leader string) error {
	return &Error{
		Kind: ErrRefused, Key: w.op.key, Unknown: w.unknown,
		Message: fmt.Sprintf("%s: the coordinator of this socket does not lead, and the leader accepts no calls through it: "+
			"repeat the command with the socket on the machine of the leader, %s, or log in", w.op.name, leader),
	}
}

// socketError is why a Unix socket can't be used, if that stays until a person acts.
type socketError struct {
	kind    error
	message string
}

// Error implements error.
func (e *socketError) Error() string { return e.message }

// diagnoseSocket returns the *socketError of a socket that was not reached, or nil if another
// attempt may succeed. Nobody listens to the socket of a coordinator that was killed, and it
// may be restarted. One that stops takes its socket along: a client that has reached it
// before waits for its restart.
func (c *Client) diagnoseSocket(ctx context.Context, addr, path string) error {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTimeout)
	defer cancel()
	conn, err := c.cfg.Dial(ctx, addr)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return nil
	}
	const name = "set --socket or DTASK_SOCKET to the dtaskd.sock in its data directory"
	switch info, statErr := os.Stat(path); {
	case errors.Is(err, fs.ErrPermission):
		return &socketError{ErrRefused, "permission denied: run the command as root or as the user of the coordinator, with sudo -u for example, or log in with dtaskctl login"}
	case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && !c.book.met(addr):
		return &socketError{ErrUnreachable, "no such file: start the coordinator with TLS on this machine, or " + name}
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		return &socketError{ErrUnreachable, "not a socket: " + name}
	}
	return nil
}
