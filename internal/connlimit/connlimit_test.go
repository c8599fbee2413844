package connlimit

import (
	"net"
	"testing"
)

func TestConnectionsAreLimitedByMachineAndInTotal(t *testing.T) {
	t.Parallel()
	var c Counter
	open := func(host string, want Reason) func() {
		t.Helper()
		release, refused := c.Open(host, 2, 4)
		if refused != want || (release == nil) != (want != "") {
			t.Fatalf("of %q: refused %q, want %q", host, refused, want)
		}
		return release
	}
	first := open("a", "")
	open("a", "")
	open("a", Address)
	first()
	first() // counts once
	again := open("a", "")
	open("a", Address)
	for range 2 {
		open("", "") // this machine has no limit of its own
	}
	open("", Total)
	open("b", Total)
	if n := c.Count(); n != 4 {
		t.Errorf("%d are open", n)
	}
	again()
	open("b", "")
	if _, refused := c.Open("b", 0, 0); refused != "" {
		t.Errorf("without limits: refused %q", refused)
	}
}

func TestMachinesThatHaveNoConnectionAreForgotten(t *testing.T) {
	t.Parallel()
	var c Counter
	release, _ := c.Open("a", 1, 1)
	release()
	if len(c.byHost) != 0 || c.Count() != 0 {
		t.Errorf("%d are open, of %v", c.Count(), c.byHost)
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

var _ net.Addr = address("")

func TestTheHostOfAConnection(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1", "[::ffff:10.0.0.1]:1": "10.0.0.1", "[2001:db8:1:2:3::1]:1": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "127.0.0.1:1": "", "[::1]:1": "", "bufconn": "", "@": "",
	} {
		if got := Host(address(from)); got != want {
			t.Errorf("%s: got %q, want %q", from, got, want)
		}
	}
}
