//go:build !linux

package access

import "net"

// checkPeerUser leaves the decision to the mode of the file.
func checkPeerUser(*net.UnixConn) error { return nil }
