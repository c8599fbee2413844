//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing here: keepalive alone finds a dead peer.
func setUserTimeout(*net.TCPConn, time.Duration) {}
