//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing here: keepalive alone detects a vanished peer.
func setUserTimeout(*net.TCPConn, time.Duration) {}
