// Package loopback decides which addresses only processes of this machine can
// reach. Connections to others need encryption and authentication.
package loopback

import (
	"net"
	"net/netip"
)

// Is reports whether an address, HOST:PORT, is on loopback: its host is
// localhost or an IP address of the loopback network. Other names are not, even
// if they resolve to one: who resolves them decides where a connection goes.
func Is(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Prefixes returns the loopback networks.
func Prefixes() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}
