package coordinator_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator"
)

func TestMetricsAreServedUnderNamesOfThisMachineOnly(t *testing.T) {
	t.Parallel()
	var at string
	_, stop := runWith(t, coordinator.Config{
		DataDir: t.TempDir(), HTTP: "127.0.0.1:0", HTTPHosts: []string{"metrics.example"}, MinFree: &coordinator.MinFree{},
		Started: func(_, address string) { at = address },
	})
	defer stop()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		at: http.StatusOK, "localhost": http.StatusOK, own: http.StatusOK, "metrics.example:80": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %s, want %d", host, resp.Status, want)
		}
	}
	page := scrape(t, "http://"+at+"/metrics")
	for _, line := range []string{
		"dtask_connections 0", `dtask_connections_refused_total{reason="invalid"} 0`, `dtask_connections_refused_total{reason="handshakes"} 0`,
		`dtask_connections_refused_total{reason="address"} 0`, `dtask_connections_refused_total{reason="total"} 0`, `dtask_connections_refused_total{reason="http"} 0`,
	} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestInvalidLimitsAndHostsAreRefused(t *testing.T) {
	t.Parallel()
	for flag, cfg := range map[string]coordinator.Config{
		"--max-connections-per-address -1": {MaxConnsPerAddress: -1},
		`--http-hosts "m1:7461"`:           {HTTPHosts: []string{"m1", "m1:7461"}},
		`--http-hosts ""`:                  {HTTPHosts: []string{""}},
	} {
		cfg.ID, cfg.DataDir = "n1", "d"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "invalid "+flag+": ") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
