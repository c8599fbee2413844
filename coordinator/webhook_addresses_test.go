package coordinator

import (
	"net/netip"
	"testing"
)

// Only this machine can submit jobs to a replica that listens on loopback.
func TestLoopbackWebhooksAreAllowedOnAReplicaThatListensOnLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"127.0.0.1:7460": true, "localhost:7460": true, "[::1]:7460": true,
		":7460": false, "0.0.0.0:7460": false, "10.0.0.1:7460": false, "db1:7460": false,
	} {
		cfg := Config{Listen: listen, WebhookAllow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		for range 2 { // the settings don't change
			p := cfg.webhookAddresses()
			if got := p.CheckURL("http://127.0.0.1/") == nil && p.CheckURL("http://[::1]/") == nil; got != want {
				t.Errorf("--listen %s: loopback is allowed: got %t, want %t", listen, got, want)
			}
			if p.CheckURL("http://10.0.0.1/") != nil || p.CheckURL("http://169.254.169.254/") == nil {
				t.Errorf("--listen %s: --webhook-allow does not decide about other addresses", listen)
			}
		}
	}
}
