package transport

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout makes the kernel give up a connection whose data nobody has
// acknowledged for d. It is an improvement only, so an error is ignored.
func setUserTimeout(conn *net.TCPConn, d time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds())) //nolint:gosec // a descriptor fits an int
	})
}
