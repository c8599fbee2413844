package access

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// checkPeerUser returns an error unless the other end is of this process's user or root.
func checkPeerUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a descriptor
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("access: reading the user of a connection: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("access: user %d may not use the socket of user %d", peer.Uid, os.Geteuid())
	}
	return nil
}
