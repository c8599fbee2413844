package nemesis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/chaos/proxy"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/faults"
)

// An edge is a directed link: the dialing side and the target.
type edge struct{ from, to string }

// Net has a proxy for each directed link of a cluster: from replica to replica,
// from worker to replica, from group of clients to replica.
type Net struct {
	links    map[edge]*proxy.Link
	addr     map[string]string // name of a replica → its own address
	name     map[string]string // and back
	Replicas []string
	Workers  []string
	Groups   []string // of clients
}

// OpenNet makes the links of a cluster that is not started yet and configures its
// replicas, which must be cluster.FaultyCoordinator, and workers to use them. The
// caller closes it after the cluster.
func OpenNet(ctx context.Context, c *cluster.Cluster, groups ...string) (*Net, error) {
	n := &Net{links: make(map[edge]*proxy.Link), addr: make(map[string]string), name: make(map[string]string), Groups: groups}
	for _, r := range c.Coordinators() {
		n.Replicas = append(n.Replicas, r.Name)
		n.addr[r.Name], n.name[r.Addr] = r.Addr, r.Name
	}
	for _, k := range c.Workers() {
		n.Workers = append(n.Workers, k.Name)
	}
	for _, to := range n.Replicas {
		for _, from := range n.everybody() {
			if from == to {
				continue
			}
			addr, err := cluster.FreePort(ctx)
			if err == nil {
				n.links[edge{from, to}], err = proxy.Open(ctx, addr, n.addr[to])
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("opening link from %s to %s: %w", from, to, err), n.Close())
			}
		}
	}
	for _, r := range c.Coordinators() {
		var entries []string
		for _, to := range n.Replicas {
			if to != r.Name {
				entries = append(entries, n.addr[to]+"="+n.links[edge{r.Name, to}].Addr())
			}
		}
		r.Setenv(faults.TrailingLogsVariable, strconv.Itoa(Trailing))
		r.Setenv(faults.AddressesVariable, strings.Join(entries, ","))
	}
	for _, k := range c.Workers() {
		k.AddArgs("--via", n.via(k.Name))
	}
	return n, nil
}

// via returns the addresses that a worker dials instead of each replica's address.
func (n *Net) via(from string) string {
	var entries []string
	for _, to := range n.Replicas {
		entries = append(entries, n.addr[to]+"="+n.links[edge{from, to}].Addr())
	}
	return strings.Join(entries, ",")
}

func (n *Net) everybody() []string {
	all := append([]string{}, n.Replicas...)
	all = append(all, n.Workers...)
	return append(all, n.Groups...)
}

// Dial connects a member of a group of clients to an address of a replica.
func (n *Net) Dial(ctx context.Context, group, addr string) (net.Conn, error) {
	if l := n.links[edge{group, n.name[addr]}]; l != nil {
		addr = l.Addr()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}

// Set sets the rules of the link from one to another, if it exists.
func (n *Net) Set(from, to string, r proxy.Rules) error {
	l := n.links[edge{from, to}]
	if l == nil {
		return nil
	}
	if err := l.Set(r); err != nil {
		return fmt.Errorf("link from %s to %s: %w", from, to, err)
	}
	if r.Refuse || r.Reset {
		l.ResetAll()
	}
	return nil
}

// Both sets the rules of the links between two, in both dialing directions.
func (n *Net) Both(a, b string, r proxy.Rules) error {
	return errors.Join(n.Set(a, b, r), n.Set(b, a, r))
}

// Oneway stops all bytes from one to another, in both dialing directions; bytes in
// the other direction pass.
func (n *Net) Oneway(from, to string) error {
	return errors.Join(n.Set(from, to, proxy.Deaf()), n.Set(to, from, proxy.Dumb()))
}

// Split sets the rules of all links between two sides.
func (n *Net) Split(a, b []string, r proxy.Rules) error {
	var errs []error
	for _, x := range a {
		for _, y := range b {
			errs = append(errs, n.Both(x, y, r))
		}
	}
	return errors.Join(errs...)
}

// Spread sets this latency in each direction between all replicas, and between
// replicas and workers.
func (n *Net) Spread(delay time.Duration) error {
	var errs []error
	for _, to := range n.Replicas {
		for _, from := range append(n.Workers, n.Replicas...) {
			errs = append(errs, n.Set(from, to, proxy.Slow(delay, 0)))
		}
	}
	return errors.Join(errs...)
}

// Heal heals the links from the given names to all replicas.
func (n *Net) Heal(from ...string) error {
	var errs []error
	for _, f := range from {
		for _, to := range n.Replicas {
			errs = append(errs, n.Set(f, to, proxy.Rules{}))
		}
	}
	return errors.Join(errs...)
}

// Reset resets all connections of the links from the given names, and returns how many.
func (n *Net) Reset(from ...string) int {
	sum := 0
	for _, f := range from {
		for _, to := range n.Replicas {
			if l := n.links[edge{f, to}]; l != nil {
				sum += l.ResetAll()
			}
		}
	}
	return sum
}

// Stats adds up the counters of all links.
func (n *Net) Stats() proxy.Stats {
	var sum proxy.Stats
	for _, l := range n.links {
		s := l.Stats()
		sum.Accepted += s.Accepted
		sum.Open += s.Open
		sum.Resets += s.Resets
		sum.Forward += s.Forward
		sum.Back += s.Back
	}
	return sum
}

// Unused lists the links between replicas that were never dialed: if there are any,
// replicas may reach each other in another way.
func (n *Net) Unused() []string {
	var names []string
	for _, from := range n.Replicas {
		for _, to := range n.Replicas {
			if l := n.links[edge{from, to}]; l != nil && l.Stats().Accepted == 0 {
				names = append(names, from+" to "+to)
			}
		}
	}
	return names
}

// Close closes all links.
func (n *Net) Close() error {
	var errs []error
	for _, l := range n.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
