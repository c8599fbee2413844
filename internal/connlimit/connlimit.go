// Package connlimit bounds how many connections of a port are open: in total, and of one
// other machine.
//
// It counts what its callers open and close. It closes nothing, starts no goroutine and has
// no errors: a caller that gets a Reason refuses the connection.
package connlimit

import (
	"net"
	"net/netip"
	"sync"
)

// Reason is why a connection is refused. It is the label of a metric.
type Reason string

// The reasons.
const (
	Address Reason = "address" // its machine has as many as it may have
	Total   Reason = "total"   // the port has as many as it may have
)

// Counter counts the open connections of a port. The zero value is ready to use. It is safe
// for concurrent use.
type Counter struct {
	mu     sync.Mutex // guards what follows
	total  int
	byHost map[string]int // without entries of 0
}

// Open counts a connection of a host, see Host, unless its host or the port has as many as
// it may have; 0 = no limit. The caller calls release when the connection is closed; more
// calls have no effect. It is nil if the connection is refused.
func (c *Counter) Open(host string, ofHost, total int) (release func(), refused Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case host != "" && ofHost > 0 && c.byHost[host] >= ofHost:
		return nil, Address
	case total > 0 && c.total >= total:
		return nil, Total
	}
	c.total++
	if host != "" {
		if c.byHost == nil {
			c.byHost = make(map[string]int)
		}
		c.byHost[host]++
	}
	return sync.OnceFunc(func() { c.release(host) }), ""
}

func (c *Counter) release(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if host == "" {
		return
	}
	if c.byHost[host]--; c.byHost[host] == 0 {
		delete(c.byHost, host)
	}
}

// Count returns how many connections are open.
func (c *Counter) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Host returns what connections of one other machine have in common: an IPv4 address or the
// /64 network of an IPv6 address. "" is this machine, whose programs share an address, so
// that no limit of an address applies to them.
func Host(addr net.Addr) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return "" // not TCP: a simulated network
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.IsLoopback() {
		return ""
	}
	if ip.Is6() {
		network, _ := ip.Prefix(64) // every IPv6 address has one
		return network.String()
	}
	return ip.String()
}
