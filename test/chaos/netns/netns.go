package netns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// nobody is an unused hardware address.
const nobody = "02:00:00:ff:ff:ff"

// A Network is a bridge with hosts.
type Network struct {
	id     string
	subnet string // the first three numbers
	bridge string // network namespace of the bridge; empty: that of the test
	hosts  map[string]*Host
	order  []*Host
}

// A Host is one network namespace.
type Host struct {
	Name string
	IP   string
	ns   string
	mac  string
}

// Available returns why networks can't be made here, or nil.
func Available(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces require root")
	}
	n, err := New(ctx)
	if err != nil {
		return fmt.Errorf("network namespaces are unavailable: %w", err)
	}
	_, err = n.Add(ctx, "probe")
	return errors.Join(err, n.Close(ctx))
}

// New makes a network without hosts, for loopback addresses. The test itself is connected
// to it, too. The caller closes it.
func New(ctx context.Context) (*Network, error) {
	n := &Network{
		id:     fmt.Sprintf("dt%04x", rand.IntN(1<<16)),
		subnet: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256)),
		hosts:  make(map[string]*Host),
	}
	err := firstOf(
		func() error { return ip(ctx, "link add "+n.id+" type bridge") },
		func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/"+n.id+"/route_localnet", []byte("1"), 0) },
		func() error { return ip(ctx, "address add "+n.subnet+".1/24 dev "+n.id) },
		func() error { return ip(ctx, "link set "+n.id+" up") },
		// Use the table that the kernel consults first, where all of 127 belongs to lo.
		func() error { return ip(ctx, "route add "+n.subnet+".0/24 dev "+n.id+" table local") },
	)
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return n, nil
}

func firstOf(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ip runs the ip command.
func ip(ctx context.Context, line string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Add adds a host.
func (n *Network) Add(ctx context.Context, name string) (*Host, error) {
	number := len(n.order) + 2
	h := &Host{
		Name: name, IP: n.subnet + "." + strconv.Itoa(number),
		ns: n.id + "-" + strconv.Itoa(number), mac: fmt.Sprintf("02:00:00:00:00:%02x", number),
	}
	n.hosts[name], n.order = h, append(n.order, h)
	for _, command := range n.commands(h, n.id+"p"+strconv.Itoa(number)) {
		if err := ip(ctx, command); err != nil {
			return nil, fmt.Errorf("adding host %s: %w", name, err)
		}
	}
	return h, nil
}

// commands are what makes a host, at a port of the bridge.
func (n *Network) commands(h *Host, port string) []string {
	at := n.atBridge()
	list := []string{
		"netns add " + h.ns,
		at + "link add " + port + " type veth peer name eth0 address " + h.mac + " netns " + h.ns,
		at + "link set " + port + " master " + n.id,
		at + "link set " + port + " up",
		"-n " + h.ns + " link set lo up",
		"-n " + h.ns + " address add " + h.IP + "/24 dev eth0",
		"-n " + h.ns + " link set eth0 up",
	}
	if n.bridge == "" { // loopback addresses
		list = append(list,
			"netns exec "+h.ns+" sysctl -qw net.ipv4.conf.eth0.route_localnet=1",
			"-n "+h.ns+" route add "+n.subnet+".0/24 dev eth0 table local")
	}
	return list
}

// atBridge are the options of ip that select the namespace of the bridge.
func (n *Network) atBridge() string {
	if n.bridge == "" {
		return ""
	}
	return "-n " + n.bridge + " "
}

// Prefix returns the command line that runs another one on the host.
func (h *Host) Prefix() []string { return []string{"ip", "netns", "exec", h.ns} }

// Cut drops all packets from one host to another.
func (n *Network) Cut(ctx context.Context, from, to string) error {
	return n.neighbor(ctx, from, to, nobody)
}

// Heal lets packets from one host to another pass again.
func (n *Network) Heal(ctx context.Context, from, to string) error {
	return n.neighbor(ctx, from, to, n.hosts[to].mac)
}

func (n *Network) neighbor(ctx context.Context, from, to, mac string) error {
	return ip(ctx, "-n "+n.hosts[from].ns+" neigh replace "+n.hosts[to].IP+" lladdr "+mac+" dev eth0 nud permanent")
}

// Close removes the network. All processes on its hosts must have exited.
func (n *Network) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // remove everything, also after a cancellation
	var errs []error
	for _, h := range n.order {
		errs = append(errs, ip(ctx, "netns delete "+h.ns)) // with its port
	}
	last := "link delete " + n.id
	if n.bridge != "" {
		last = "netns delete " + n.bridge // with the bridge
	}
	return errors.Join(append(errs, ip(ctx, last))...)
}
