package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/fsm"
	line "github.com/dtask/dtask/internal/audit"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func TestTheAuditLogIsOnInAClusterWithIdentities(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want AuditMode
	}{
		{Config{}, AuditOff},
		{Config{TLSDir: "tls"}, AuditBestEffort},
		{Config{TLSDir: "tls", Audit: AuditOff}, AuditOff},
		{Config{Audit: AuditRequired}, AuditRequired},
	} {
		got := c.cfg
		if got.defaults(); got.Audit != c.want {
			t.Errorf("with --tls-dir %q and --audit %q: got %s, want %s", c.cfg.TLSDir, c.cfg.Audit, got.Audit, c.want)
		}
	}
}

// alone is a replica of a cluster of one, in this process.
type alone struct {
	*client.Client // over plaintext; with TLS through the socket

	http string // address
	stop func()
}

// runAlone starts a replica. The data directory must have a short path.
func runAlone(t *testing.T, cfg Config) *alone {
	t.Helper()
	cfg.ID, cfg.Listen, cfg.MinFree, cfg.Logger = "n1", "127.0.0.1:0", new(MinFree), slog.New(slog.DiscardHandler)
	a, started := new(alone), make(chan struct{})
	address := ""
	cfg.Started = func(listen, http string) {
		address, a.http = listen, http
		close(started)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1) // the result of Run
	go func() { done <- Run(ctx, cfg) }()
	select {
	case <-started:
	case err := <-done:
		t.Fatal(err)
	}
	if cfg.TLSDir != "" {
		address = "unix:" + cfg.Socket()
	}
	c, err := client.New(client.Config{Addrs: []string{address}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	a.Client = c
	a.stop = func() {
		_ = c.Close()
		stop()
		if err := <-done; err != nil {
			t.Errorf("the replica stopped with %v", err)
		}
	}
	return a
}

// shortDir returns a directory for a socket, whose path is limited.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n1") //nolint:usetesting // that of the test is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// submitJob submits a job that waits for a worker, and returns its ID.
func (a *alone) submitJob(ctx context.Context, name string) (string, error) {
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: name})
	if err != nil {
		return "", err
	}
	got, err := a.Submit(ctx, job, client.SubmitOptions{})
	return got.ID, err
}

// auditAlarm returns the message of the alarm about the audit log; empty without one.
func (a *alone) auditAlarm(t *testing.T) string {
	t.Helper()
	status, err := a.ClusterStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range status.GetAlarms() {
		if x.GetKind() == membership.AlarmAuditLog {
			return x.GetMessage()
		}
	}
	return ""
}

// poll waits until a condition is true.
func poll(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); !done(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// With --audit=required, jobs are refused while the log can't be written. What exists can
// be cancelled.
func TestJobsThatCannotBeRecordedAreRefusedAndOthersCancelled(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	before := runAlone(t, Config{DataDir: dir})
	id, err := before.submitJob(t.Context(), "early")
	if err != nil {
		t.Fatal(err)
	}
	before.stop()

	blocked := filepath.Join(dir, line.Directory)
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // no directory can be made
		t.Fatal(err)
	}
	a := runAlone(t, Config{DataDir: dir, Audit: AuditRequired})
	defer a.stop()
	poll(t, "the alarm", func() bool {
		return strings.Contains(a.auditAlarm(t), "can't be written, so changes are refused (--audit=required)")
	})
	if _, err := a.submitJob(t.Context(), "late"); !errors.Is(err, client.ErrBusy) || !strings.Contains(err.Error(), "--audit=required refuses changes without it") {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if _, err := a.Cancel(t.Context(), id, "", ""); err != nil {
		t.Errorf("cancelling: %v", err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	poll(t, "the end of the alarm", func() bool { return a.auditAlarm(t) == "" })
	if _, err := a.submitJob(t.Context(), "last"); err != nil {
		t.Error(err)
	}
}

// The port for metrics refuses callers that come from other machines, and its denials are in
// the log and in the metrics.
func TestDenialsOfTheHTTPPortAreRecorded(t *testing.T) {
	t.Parallel()
	dir, certs := shortDir(t), issued(t, 0)
	trust, err := tlsconf.ReadTrust(filepath.Join(certs, tlsconf.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	a := runAlone(t, Config{DataDir: dir, TLSDir: certs, HTTP: "0.0.0.0:0", HTTPHosts: []string{"metrics.example"}})
	newToken := func(role string) (token string) {
		poll(t, "a token", func() bool { // once the cluster has its level
			made, _, err := a.CreateToken(t.Context(), client.TokenOptions{Name: role, Role: role})
			if err == nil {
				token = made.Reveal()
			}
			return err == nil
		})
		return token
	}
	secure := trust.Config(nil, nil)
	secure.NextProtos = nil
	transport := &http.Transport{TLSClientConfig: secure}
	_, port, err := net.SplitHostPort(a.http)
	if err != nil {
		t.Fatal(err)
	}
	body := ""
	for _, x := range []struct {
		header string
		want   int
	}{
		{"", http.StatusUnauthorized},
		{"Bearer unknown", http.StatusUnauthorized},
		{"Bearer " + newToken("reader"), http.StatusForbidden},
		{"Bearer " + newToken("metrics"), http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "metrics.example"
		if x.header != "" {
			req.Header.Set("Authorization", x.header)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		body = string(data)
		_ = resp.Body.Close()
		if resp.StatusCode != x.want || err != nil {
			t.Errorf("got %s, %v, want %d", resp.Status, err, x.want)
		}
	}
	for _, reason := range []string{"no_credential", "credential", "role"} {
		if series := "dtask_calls_denied_total{reason=\"" + reason + "\"} 1\n"; !strings.Contains(body, series) {
			t.Errorf("the metrics have no series %s", series)
		}
	}
	transport.CloseIdleConnections()
	a.stop() // writes what is left
	files, err := line.Files(filepath.Join(dir, line.Directory))
	if err != nil {
		t.Fatal(err)
	}
	denied := make(map[string]line.Record) // by caller
	err = line.Each(files, func(r *line.Record) error {
		if r.Method == "/metrics" {
			denied[r.Who] = *r
		}
		return nil
	})
	if err != nil || len(denied) != 2 || denied["reader"].Decision != line.Denied || denied[""].Decision != line.Denied || denied[""].Remote == "" {
		t.Errorf("got %+v, %v", denied, err)
	}
}

// The leader records the last line of each log in the state, which the log is verified
// against.
func TestTheHeadOfAnAuditLogIsRecordedInTheState(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	a := runAlone(t, Config{DataDir: dir, Audit: AuditBestEffort})
	var heads []*dtaskv1.AuditHead
	poll(t, "a head", func() (known bool) {
		var err error
		heads, err = a.AuditHeads(t.Context())
		return err == nil && len(heads) == 1
	})
	a.stop()
	files, err := line.Files(filepath.Join(dir, line.Directory))
	if err != nil {
		t.Fatal(err)
	}
	report, err := line.Verify(files, line.Head{Seq: heads[0].GetSeq(), Hash: [32]byte(heads[0].GetHash())})
	if err != nil || len(report.Faults) > 0 || heads[0].GetServerId() != "n1" || report.ServerID != "n1" {
		t.Errorf("got %v, %+v, %v", heads, report, err)
	}
}

// A replica that reports less than the cluster knows of its log has lost lines, or hides
// them. The leader raises an alarm until the log continues behind the line that is known.
func TestTheLeaderRaisesAnAlarmAboutALogThatLacksLines(t *testing.T) {
	t.Parallel()
	duties := make(chan auditHeads, 1) // of the first term
	cfg := Config{DataDir: shortDir(t), Audit: AuditBestEffort}
	cfg.Seams.Duty = func(d leader.Duty) leader.Duty {
		if a, ok := d.(auditHeads); ok {
			select {
			case duties <- a:
			default:
			}
		}
		return d
	}
	a := runAlone(t, cfg)
	defer a.stop()
	duty := <-duties
	known := func() bool {
		head, ok := duty.audit.Head()
		term := duty.leadership.term.Load()
		if !ok || term == nil {
			return false
		}
		rejected, err := term.RecordAuditHeads(t.Context(), fsm.AuditHead{ServerID: "n1", Seq: head.Seq + 1000, Hash: [32]byte{1}})
		return err == nil && len(rejected) == 0
	}
	raised := func() string {
		duty.record(t.Context())
		for _, x := range duty.alarms.Of("n1") {
			if x.GetKind() == membership.AlarmPeerAuditLog {
				return x.GetMessage()
			}
		}
		return ""
	}
	message := ""
	// The replica itself notices within a second, too: then the cluster must know more again.
	poll(t, "the alarm of the leader", func() bool {
		if known() {
			message = raised()
		}
		return message != ""
	})
	if !strings.Contains(message, "the audit log of replica n1 was cut or changed: it ends with line ") {
		t.Errorf("got %q", message)
	}
	poll(t, "the alarm of the replica", func() bool { return strings.Contains(a.auditAlarm(t), "the log has no such line") })
	poll(t, "the end of the alarm of the leader", func() bool { return raised() == "" })
}
