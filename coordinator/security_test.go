package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/internal/tlsconf"
)

// issued writes the certificate of replica n1, valid from now for a time.
func issued(t *testing.T, validity time.Duration) (dir string) {
	t.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public(), Validity: validity}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := tlsconf.Save(dir, cert, key, ca.Roots...); err != nil {
		t.Fatal(err)
	}
	return dir
}

// secured opens what a replica has with a certificate.
func secured(t *testing.T, cfg Config) *security {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := openSecurity(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFounderUsesTheClusterOfItsCertificate(t *testing.T) {
	t.Parallel()
	dir, data := issued(t, 0), shortDir(t)
	cfg := Config{
		ID: "n1", DataDir: data, Listen: "127.0.0.1:0", TLSDir: dir, MinFree: new(MinFree),
		Logger: slog.New(slog.DiscardHandler),
	}
	want := secured(t, cfg).newClusterID()
	for _, secure := range []bool{true, false} { // the second one has the directory of the first
		got, err := identify(t, cfg)
		if secure && (err != nil || got != want) {
			t.Errorf("got cluster %s, %v; want %s", got, err, want)
		}
		if !secure && (!errors.Is(err, errOtherCluster) || !strings.Contains(err.Error(), data)) {
			t.Errorf("with a certificate of another cluster: %v", err)
		}
		cfg.TLSDir = issued(t, 0)
	}
}

func TestOnlyTLSAllowsAddressesOffLoopback(t *testing.T) {
	t.Parallel()
	dir := issued(t, 0)
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"plaintext":        {func(c *Config) { c.TLSDir, c.Listen = "", "10.0.0.1:7460" }, "other machines require TLS: create certificates with dtaskctl tls init"},
		"plaintext peers":  {func(c *Config) { c.TLSDir, c.Peers = "", []Peer{{"n1", "10.0.0.1:1"}} }, "invalid --peers"},
		"plaintext http":   {func(c *Config) { c.TLSDir, c.HTTP = "", "10.0.0.1:1" }, "invalid --http"},
		"TLS":              {func(c *Config) { c.Listen, c.HTTP, c.Peers = "10.0.0.1:7460", "10.0.0.1:1", []Peer{{"n1", "m1:7460"}} }, ""},
		"all interfaces":   {func(c *Config) { c.Listen = "0.0.0.0:7460" }, "--advertise is required with --listen 0.0.0.0:7460"},
		"with an address":  {func(c *Config) { c.Listen, c.Advertise = ":7460", "m1:7460" }, ""},
		"not an address":   {func(c *Config) { c.Advertise = "[::]:7460" }, "must be an address that others can dial"},
		"of another":       {func(c *Config) { c.ID = "n2" }, "its certificate is of replica n1, and --id is n2"},
		"no certificate":   {func(c *Config) { c.TLSDir = filepath.Join(dir, "none") }, "--tls-dir: reading"},
		"not a directory":  {func(c *Config) { c.TLSDir = filepath.Join(dir, tlsconf.CAFile) }, "--tls-dir: reading"},
		"a form of no use": {func(c *Config) { c.Listen = "m1" }, "must be HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{ID: "n1", DataDir: t.TempDir(), Listen: "127.0.0.1:7460", TLSDir: dir}
			c.change(&cfg)
			cfg.defaults()
			err := cfg.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCertificatesThatExpireSoonOrAreRefusedRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	s := secured(t, Config{TLSDir: issued(t, 30*24*time.Hour)})
	now := time.Now()
	for _, c := range []struct {
		at   time.Time
		note func()
		want string // empty: no alarm
		kind string
	}{
		{now, nil, "", membership.AlarmCertificate},
		{now.Add(21 * 24 * time.Hour), nil, "expires in 2", membership.AlarmCertificate},
		{now.Add(31 * 24 * time.Hour), nil, "expired 2", membership.AlarmCertificate},
		{time.Unix(0, 0), nil, "becomes valid in", membership.AlarmCertificate},
		{now, func() { s.noteFiles(errors.New("half written")) }, "changed files are refused: half written", membership.AlarmCertificate},
		{now, func() { s.noteFiles(nil) }, "", membership.AlarmCertificate},
		{now, func() { s.notePeer("n2", &tlsconf.DateError{Subject: "replica n2", Now: now}) }, "certificate of replica n2", membership.AlarmPeerCertificate},
		{now, func() { s.notePeer("n2", nil) }, "", membership.AlarmPeerCertificate},
	} {
		if c.note != nil {
			c.note()
		}
		var alarms membership.Alarms
		s.setAlarms(&alarms, c.at)
		list := alarms.Of("n1")
		switch {
		case c.want == "" && len(list) > 0:
			t.Errorf("at %s: %v, want no alarm", c.at, list)
		case c.want != "" && (len(list) != 1 || list[0].GetKind() != c.kind || !strings.Contains(list[0].GetMessage(), c.want)):
			t.Errorf("at %s: %v, want %s with %q", c.at, list, c.kind, c.want)
		}
	}
}

func TestTheHTTPPortIsSecuredOffLoopback(t *testing.T) {
	t.Parallel()
	dir := issued(t, 0)
	trust, err := tlsconf.ReadTrust(filepath.Join(dir, tlsconf.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := secured(t, Config{TLSDir: dir, HTTP: "127.0.0.1:1"}).secureHTTP(l); got != l {
		t.Error("on loopback it is secured")
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	}
	done := make(chan error, 1) // size 1: the result of Serve
	go func() { done <- server.Serve(secured(t, Config{TLSDir: dir, HTTP: "10.0.0.1:1"}).secureHTTP(l)) }()
	cfg := trust.Config(nil, nil)
	cfg.NextProtos = nil
	transport := &http.Transport{TLSClientConfig: cfg}
	for scheme, want := range map[string]int{"https": http.StatusNoContent, "http": http.StatusBadRequest} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+l.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		if resp.StatusCode != want || (scheme == "https" && resp.TLS.Version != tls.VersionTLS13) {
			t.Errorf("%s: got %s, want %d", scheme, resp.Status, want)
		}
		_ = resp.Body.Close()
	}
	transport.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

// identify runs a replica until it knows its cluster, and returns the cluster's id, or the
// error with which the replica ends.
func identify(t *testing.T, cfg Config) (clusterID string, err error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	started, done := make(chan string, 1), make(chan error, 1) // size 1: one result each
	cfg.Started = func(listen, _ string) { started <- listen }
	go func() { done <- Run(ctx, cfg) }()
	select {
	case err := <-done:
		return "", err
	case <-started:
	}
	c, err := client.New(client.Config{Addrs: []string{"unix:" + cfg.Socket()}})
	if err != nil {
		t.Fatal(err)
	}
	for tick := time.NewTicker(time.Millisecond); clusterID == "" && err == nil; <-tick.C {
		who, idErr := c.Identify(ctx)
		clusterID, err = who.GetClusterId(), idErr
	}
	stop()
	return clusterID, errors.Join(err, c.Close(), <-done)
}
