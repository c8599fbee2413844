package notify

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/dtask/dtask/fsm"
)

func allow(prefixes ...string) (p AddressPolicy) {
	for _, s := range prefixes {
		p.Allowed = append(p.Allowed, netip.MustParsePrefix(s))
	}
	return p
}

func TestOnlyPublicAddressesMayBeReachedByDefault(t *testing.T) {
	t.Parallel()
	for address, kind := range map[string]string{
		"8.8.8.8": "", "1.1.1.1": "", "9.255.255.255": "", "11.0.0.0": "", "172.15.255.255": "", "172.32.0.0": "",
		"192.167.255.255": "", "192.169.0.0": "", "100.63.255.255": "", "100.128.0.0": "", "169.253.255.255": "", "169.255.0.0": "",
		"126.255.255.255": "", "128.0.0.0": "", "1.0.0.0": "", "223.255.255.255": "", "192.0.1.0": "", "198.20.0.0": "",
		"127.0.0.1": "loopback", "127.255.255.254": "loopback",
		"169.254.169.254": "link-local", "169.254.0.0": "link-local", "169.254.255.255": "link-local",
		"10.0.0.0": "private network", "10.255.255.255": "private network",
		"172.16.0.0": "private network", "172.31.255.255": "private network",
		"192.168.0.0": "private network", "192.168.255.255": "private network",
		"100.64.0.0": "shared address space", "100.127.255.255": "shared address space",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast",
		"240.0.0.1": "reserved", "255.255.255.255": "reserved", "192.0.0.192": "reserved",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation",
		"192.88.99.1": "6to4 relay", "198.18.0.1": "benchmark network", "198.19.255.255": "benchmark network",

		"2606:4700::1": "", "2001:4860:4860::8888": "", "2a00::1": "",
		"::1": "loopback", "::": "unspecified",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf:ffff::1": "link-local",
		"fec0::1": "site-local", "fc00::1": "unique local", "fd00:ec2::254": "unique local",
		"ff02::1": "multicast", "2001::1": "Teredo", "2002:a01:203::1": "6to4", "2002:808:808::1": "6to4",
		"2001:db8::1": "documentation", "3fff::1": "documentation", "5f00::1": "segment routing", "100::1": "discard-only",

		// IPv4 addresses in IPv6 ones: mapped, NAT64, and the obsolete compatible and
		// translated forms.
		"::ffff:8.8.8.8": "", "::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "link-local", "::ffff:a01:203": "private network",
		"64:ff9b::8.8.8.8": "", "64:ff9b::169.254.169.254": "link-local", "64:ff9b::a01:203": "private network",
		"64:ff9b::127.0.0.1": "loopback", "64:ff9b::": "unspecified", "64:ff9b::ffff:127.0.0.1": "reserved",
		"64:ff9b:1::8.8.8.8": "local NAT64", "::127.0.0.1": "reserved", "::ffff:0:127.0.0.1": "reserved",
	} {
		err := AddressPolicy{}.Check(netip.MustParseAddr(address))
		if kind == "" {
			if err != nil {
				t.Errorf("public address %s: %v", address, err)
			}
			continue
		}
		if private, ok := errors.AsType[*PrivateAddressError](err); !ok || private.Kind != kind {
			t.Errorf("address %s: got %v, want it to be private (%s)", address, err, kind)
		}
	}
	if err := (AddressPolicy{}).Check(netip.Addr{}); err == nil {
		t.Error("an invalid address is public")
	}
}

func TestAnAllowedRangePermitsExactlyItsAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, allowed string
		want             string // part of the error; empty = permitted
	}{
		{"10.1.2.3", "10.1.0.0/16", ""},
		{"::ffff:10.1.2.3", "10.1.0.0/16", ""},
		{"10.2.0.1", "10.1.0.0/16", "address 10.2.0.1 is private (private network): allow it with dtaskd --webhook-allow 10.2.0.1/32"},
		{"fd00::1", "fd00::/64", ""},
		{"fe80::1%eth0", "fe80::/10", ""},
		{"fd01::1", "fd00::/64", "--webhook-allow fd01::1/128"},
		{"0.0.0.0", "127.0.0.0/8", "unspecified"},
		{"169.254.169.254", "0.0.0.0/0", ""},
		{"::1", "0.0.0.0/0", "loopback"},
		// What a NAT64 gateway connects to is not what this machine would.
		{"64:ff9b::a01:203", "10.1.0.0/16", "--webhook-allow 64:ff9b::a01:203/128"},
		{"64:ff9b::a01:203", "64:ff9b::/96", ""},
	} {
		err := allow("192.168.7.0/24", c.allowed).Check(netip.MustParseAddr(c.address))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with --webhook-allow %s: got %v, want %q", c.address, c.allowed, err, c.want)
		}
	}
}

func TestAURLWithAPrivateAddressOrLocalhostIsRefused(t *testing.T) {
	t.Parallel()
	for webhook, want := range map[string]string{
		"https://example.org/ended": "", "http://10.0.0.1.example.org/": "", "http://localhost.example.org/": "", "http://8.8.8.8/": "", "http://[2a00::1]:8080/": "",
		"http://\x7f/": "", "/relative": "",
		"http://169.254.169.254/latest/": "address 169.254.169.254 is private (link-local): allow it with dtaskd --webhook-allow 169.254.169.254/32",
		"http://127.0.0.1:8080/":         "loopback", "https://[::1]/": "loopback", "http://[::ffff:10.0.0.1]/": "--webhook-allow 10.0.0.1/32",
		"http://[fe80::1%25eth0]/": "link-local", "http://10.0.0.1./": "private network",
		"http://LocalHost:80/": "address localhost is private (loopback): allow it with dtaskd --webhook-allow 127.0.0.1/32",
		"http://localhost./":   "loopback", "http://a.localhost/": "address a.localhost is",
	} {
		err := AddressPolicy{}.CheckURL(webhook)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", webhook, err, want)
		}
	}
	for _, p := range []AddressPolicy{allow("127.0.0.0/8"), allow("::1/128")} {
		if err := p.CheckURL("http://localhost/"); err != nil {
			t.Errorf("localhost with %v: %v", p.Allowed, err)
		}
	}
}

// receive starts a receiver on loopback and returns its URL with another host name.
func (b *inbox) receive(t *testing.T, host string) string {
	t.Helper()
	server := httptest.NewServer(b.answering(200))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", host, 1)
}

func TestAWebhookWhoseNameResolvesToAPrivateAddressIsDroppedAtOnce(t *testing.T) {
	t.Parallel()
	c, box := newCluster(t), new(inbox)
	c.end(box.receive(t, "localhost"))
	out := logged{lines: make(chan string, 10)}
	totals, _ := c.lead(nil, func(cfg *Config) { cfg.Logger = slog.New(slog.NewTextHandler(out, nil)) })
	c.await(1)
	line := ""
	select {
	case line = <-out.lines:
	default:
	}
	if !strings.Contains(line, "notification dropped") || !strings.Contains(line, "is private (loopback): allow it with dtaskd --webhook-allow ") {
		t.Errorf("logged: %s", line)
	}
	if delivered, dropped := c.outcomes(); delivered != 0 || dropped != 1 || totals.Dropped.Load() != 1 || totals.Attempts.Load() != 1 {
		t.Errorf("%d delivered, %d dropped, %d attempts; want 0, 1, 1", delivered, dropped, totals.Attempts.Load())
	}
	if n := len(box.all()); n != 0 {
		t.Errorf("the receiver got %d requests", n)
	}
}

func TestAnAllowedPrivateAddressReceivesWebhooks(t *testing.T) {
	t.Parallel()
	c, box := newCluster(t), new(inbox)
	c.end(box.receive(t, "localhost"))
	c.lead(nil, func(cfg *Config) { cfg.Addresses = allow("127.0.0.0/8", "::1/128") })
	c.await(1)
	if delivered, _ := c.outcomes(); delivered != 1 || len(box.all()) != 1 {
		t.Errorf("%d delivered in %d requests, want 1 in 1", delivered, len(box.all()))
	}
}

// The job's webhook must not use the idle connection of the operator's one either.
func TestOnlyTheOperatorsWebhooksReachPrivateAddresses(t *testing.T) {
	t.Parallel()
	c, box := newCluster(t), new(inbox)
	to := box.receive(t, "127.0.0.1")
	c.die(fsm.DeadLetterWebhookNotification)
	c.lead(nil, func(cfg *Config) { cfg.Hooks.DeadLetterWebhook = to })
	c.await(1)
	c.end(to)
	c.await(2)
	delivered, dropped := c.outcomes()
	if got := box.all(); delivered != 1 || dropped != 1 || len(got) != 1 || !strings.Contains(got[0].body, `"dead_letter"`) {
		t.Errorf("%d delivered, %d dropped, requests %+v; want the dead letter alone", delivered, dropped, got)
	}
}

func TestOnlyTheOperatorsWebhooksUseAProxy(t *testing.T) {
	t.Parallel()
	c, box, viaProxy := newCluster(t), new(inbox), new(inbox)
	to := box.receive(t, "127.0.0.1")
	proxy, err := url.Parse(viaProxy.receive(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	c.die(fsm.DeadLetterWebhookNotification)
	c.end(to)
	c.lead(nil, func(cfg *Config) {
		cfg.Hooks.DeadLetterWebhook = "http://operator.test/"
		cfg.Addresses, cfg.Proxy = allow("127.0.0.0/8"), http.ProxyURL(proxy)
	})
	c.await(2)
	direct, proxied := box.all(), viaProxy.all()
	if len(direct) != 1 || !strings.Contains(direct[0].body, `"job.completed"`) {
		t.Errorf("sent directly: %+v, want the job's webhook", direct)
	}
	if len(proxied) != 1 || proxied[0].url != "http://operator.test/" {
		t.Errorf("sent to the proxy: %+v, want the dead letter", proxied)
	}
}

// Redirects are not followed. If they were, each hop would be checked.
func TestEachHopOfARedirectIsChecked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.RedirectHandler("http://127.0.0.2:1/", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	cfg := Config{Addresses: allow("127.0.0.1/32")}
	cfg.defaults()
	clients := newClients(&cfg)
	t.Cleanup(clients.close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	client := *clients.of(message{ofJob: true})
	client.CheckRedirect = nil // follow them
	response, err := client.Do(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	if private, ok := errors.AsType[*PrivateAddressError](err); !ok || private.Host != "127.0.0.2" {
		t.Errorf("got %v, want a refusal of 127.0.0.2", err)
	}
}

// A host that also has a public address may be reached by it later.
func TestAHostIsRefusedOnlyIfAllItsAddressesArePrivate(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	for _, c := range []struct {
		addresses []string
		refused   bool
	}{
		{[]string{"[fd00::1]:80", "8.8.8.8:80"}, false},
		{[]string{"8.8.8.8:80", "10.0.0.1:80"}, false},
		{[]string{"[fd00::1]:80", "10.0.0.1:80"}, true},
		{nil, false}, // the name is unknown
	} {
		check := new(dialCheck)
		for _, a := range c.addresses {
			err := check.control(t.Context(), "tcp", a, nil)
			if _, ok := errors.AsType[*PrivateAddressError](err); ok {
				t.Errorf("%s: the error of one address ends the delivery: %v", a, err)
			}
		}
		_, refused := errors.AsType[*PrivateAddressError](check.explain(unreachable))
		if refused != c.refused {
			t.Errorf("%v: refused is %t, want %t", c.addresses, refused, c.refused)
		}
	}
	if err := new(dialCheck).control(t.Context(), "unix", "/run/socket", nil); err == nil {
		t.Error("an address that is not HOST:PORT was accepted")
	}
}

func ExampleAddressPolicy_CheckURL() {
	p := AddressPolicy{Allowed: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	fmt.Println(p.CheckURL("http://10.1.2.3/ended"))
	fmt.Println(p.CheckURL("http://169.254.169.254/latest/meta-data"))
	// Output:
	// <nil>
	// address 169.254.169.254 is private (link-local): allow it with dtaskd --webhook-allow 169.254.169.254/32
}
