//go:build !linux

package raftnode

import (
	"net"
	"time"
)

// setUserTimeout does nothing here: keepalive alone finds a dead peer.
func setUserTimeout(*net.TCPConn, time.Duration) {}
