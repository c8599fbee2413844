package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
)

// An addressRange is a range of addresses of one kind.
type addressRange struct {
	prefix netip.Prefix
	kind   string
}

// privateRanges are the addresses that are not public. The first range that contains an
// address names its kind. They follow IANA's registries of special-purpose addresses
// (RFC 6890), which mark these as not globally reachable, and add multicast and the
// transition mechanisms that embed an IPv4 address.
var privateRanges = []addressRange{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},               // RFC 1122
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},          // RFC 3927; metadata services of clouds
	{netip.MustParsePrefix("10.0.0.0/8"), "private network"},         // RFC 1918
	{netip.MustParsePrefix("172.16.0.0/12"), "private network"},      // RFC 1918
	{netip.MustParsePrefix("192.168.0.0/16"), "private network"},     // RFC 1918
	{netip.MustParsePrefix("100.64.0.0/10"), "shared address space"}, // RFC 6598
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},              // RFC 1122; Linux connects 0.0.0.0 to loopback
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},              // RFC 5771
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},               // RFC 1112, and broadcast: RFC 919
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},              // RFC 6890
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},         // RFC 5737
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},      // RFC 5737
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},       // RFC 5737
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},          // RFC 7526
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmark network"},    // RFC 2544
	{netip.MustParsePrefix("::1/128"), "loopback"},                   // RFC 4291
	{netip.MustParsePrefix("::/128"), "unspecified"},                 // RFC 4291; Linux connects it to loopback
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64"},         // RFC 8215
	{netip.MustParsePrefix("fe80::/10"), "link-local"},               // RFC 4291
	{netip.MustParsePrefix("fec0::/10"), "site-local"},               // RFC 3879
	{netip.MustParsePrefix("fc00::/7"), "unique local"},              // RFC 4193
	{netip.MustParsePrefix("ff00::/8"), "multicast"},                 // RFC 4291
	{netip.MustParsePrefix("2001::/32"), "Teredo"},                   // RFC 4380
	{netip.MustParsePrefix("2002::/16"), "6to4"},                     // RFC 3056
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},        // RFC 3849
	{netip.MustParsePrefix("3fff::/20"), "documentation"},            // RFC 9637
	{netip.MustParsePrefix("5f00::/16"), "segment routing"},          // RFC 9602
	{netip.MustParsePrefix("100::/64"), "discard-only"},              // RFC 6666
	{netip.MustParsePrefix("::/8"), "reserved"},                      // RFC 4291, with IPv4-compatible addresses
}

// nat64 has public addresses if the IPv4 address in the last four bytes is public
// (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// kindOf returns the kind of a private address, or the empty string for a public one.
// An address that can't be valid is private.
func kindOf(a netip.Addr) string {
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, r := range privateRanges {
		if r.prefix.Contains(a) {
			return r.kind
		}
	}
	if !a.IsValid() {
		return "unknown"
	}
	return ""
}

// AddressPolicy decides which addresses the webhooks of jobs may reach: public ones, and
// the allowed private ones. Otherwise every user who may submit jobs could make the
// leader send requests into the network of its operator.
type AddressPolicy struct {
	// Allowed are private addresses that webhooks may reach.
	Allowed []netip.Prefix
}

// PrivateAddressError is returned for a webhook to a private address that the policy
// does not allow. The webhook can't be called unless the operator changes the policy.
type PrivateAddressError struct {
	Host  string // as it is in the URL, or the address that it resolves to
	Kind  string // of address, such as loopback
	Allow string // the value of --webhook-allow that permits it
}

// Error implements error.
func (e *PrivateAddressError) Error() string {
	return fmt.Sprintf("address %s is private (%s): allow it with dtaskd --webhook-allow %s", e.Host, e.Kind, e.Allow)
}

// Check returns a *PrivateAddressError if webhooks must not reach an address.
func (p AddressPolicy) Check(a netip.Addr) error {
	if e := p.check(a); e != nil {
		return e
	}
	return nil
}

func (p AddressPolicy) check(a netip.Addr) *PrivateAddressError {
	a = a.WithZone("").Unmap() // the kernel connects an IPv4-mapped address by IPv4
	kind := kindOf(a)
	if kind == "" {
		return nil
	}
	for _, allowed := range p.Allowed {
		if allowed.Contains(a) {
			return nil
		}
	}
	return &PrivateAddressError{Host: a.String(), Kind: kind, Allow: netip.PrefixFrom(a, a.BitLen()).String()}
}

// CheckURL returns a *PrivateAddressError if a webhook can never be called: its host is a
// private address or localhost. Other names are checked when they are resolved, and
// invalid URLs by package spec.
func (p AddressPolicy) CheckURL(webhook string) error {
	u, err := url.Parse(webhook)
	if err != nil {
		return nil //nolint:nilerr // package spec reports it
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761
		private := p.check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		if private == nil || p.check(netip.IPv6Loopback()) == nil {
			return nil
		}
		private.Host = host
		return private
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	return p.Check(a)
}

// dial connects to HOST:PORT. It returns a *PrivateAddressError if the host has only
// addresses that the policy refuses.
//
// The check belongs to each connection: a name can resolve to another address a moment
// later, and a redirect leads to another host.
func (p AddressPolicy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c := dialCheck{policy: p}
	conn, err := (&net.Dialer{ControlContext: c.control}).DialContext(ctx, network, address)
	if err != nil {
		return nil, c.explain(err)
	}
	return conn, nil
}

// A dialCheck checks the addresses to which one call of dial connects.
type dialCheck struct {
	policy AddressPolicy

	mu      sync.Mutex // guards the fields below: addresses are tried concurrently
	refused *PrivateAddressError
	tried   bool // an address that is not refused
}

// control is called with each address before the connection is made.
func (c *dialCheck) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("checking address: %w", err)
	}
	refused := c.policy.check(to.Addr())
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused == nil {
		c.tried = true
		return nil
	}
	c.refused = refused
	// The text alone: another address of the host may work next time, so that the
	// delivery is retried.
	return errors.New(refused.Error())
}

// explain returns the refusal if no address was tried, and err otherwise.
func (c *dialCheck) explain(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused != nil && !c.tried {
		return c.refused
	}
	return err
}
