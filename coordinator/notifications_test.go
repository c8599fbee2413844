package coordinator_test

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/spec"
)

// runWithMetrics starts a replica of a cluster of one, and returns a client and the URL
// of its metrics.
func runWithMetrics(t *testing.T, dir string) (c *client.Client, metrics string, stop func()) {
	t.Helper()
	c, stop = runWith(t, coordinator.Config{
		DataDir: dir, HTTP: "127.0.0.1:0", MinFree: new(coordinator.MinFree),
		Started: func(_, http string) { metrics = "http://" + http + "/metrics" },
	})
	return c, metrics, stop
}

// metric returns the value of a metric.
func metric(t *testing.T, url, name string) string {
	t.Helper()
	for line := range strings.Lines(scrape(t, url)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return ""
}

func TestANotificationIsDeliveredAfterARestart(t *testing.T) {
	t.Parallel()
	ids := make(chan string, 100)
	var up atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		ids <- r.Header.Get("webhook-id")
	}))
	defer receiver.Close()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "notified"})
	if err != nil {
		t.Fatal(err)
	}
	job.Header.Webhook = receiver.URL
	dir := t.TempDir()
	c, metrics, stop := runWithMetrics(t, dir)
	stored, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cancel(t.Context(), stored.ID, "", "enough"); err != nil {
		t.Fatal(err)
	}
	first := <-ids
	if n, letters := metric(t, metrics, "dtask_notifications_pending"), metric(t, metrics, `dtask_dead_letters{type="(others)"}`); n != "1" || letters != "0" {
		t.Errorf("%s pending notifications, %s dead letters; want 1, 0", n, letters)
	}
	stop()

	up.Store(true)
	_, metrics, stop = runWithMetrics(t, dir)
	defer stop()
	for {
		select {
		case again := <-ids: // also requests that were in flight
			if again != first {
				t.Fatalf("delivered with the id %q, before with %q", again, first)
			}
		case <-time.After(10 * time.Millisecond):
		}
		if metric(t, metrics, "dtask_notifications_delivered_total") == "1" && metric(t, metrics, "dtask_notifications_pending") == "0" {
			return
		}
	}
}

func TestInvalidHookSettingsAreRefusedByFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)), 0o600)
	script := write("hook", "#!/bin/sh\n", 0o700)
	plain := write("plain", "#!/bin/sh\n", 0o600)
	for name, c := range map[string]struct {
		set  func(*coordinator.Config)
		want string
	}{
		"valid":            {func(*coordinator.Config) {}, ""},
		"not a URL":        {func(c *coordinator.Config) { c.DeadLetterWebhook = "/hook" }, `--dead-letter-webhook: invalid URL "/hook"`},
		"a password":       {func(c *coordinator.Config) { c.DeadLetterWebhook = "http://u:hush@a/" }, "--dead-letter-webhook: contains a user or a password"},
		"relative":         {func(c *coordinator.Config) { c.DeadLetterCommand = "hook" }, `--dead-letter-command: invalid path "hook": must be absolute`},
		"missing":          {func(c *coordinator.Config) { c.DeadLetterCommand = dir + "/none" }, "--dead-letter-command: stat "},
		"a directory":      {func(c *coordinator.Config) { c.DeadLetterCommand = dir }, "is not executable"},
		"not executable":   {func(c *coordinator.Config) { c.DeadLetterCommand = plain }, "is not executable; run chmod +x"},
		"not a secret":     {func(c *coordinator.Config) { c.WebhookSecretFile = plain }, "must start with whsec_"},
		"a missing secret": {func(c *coordinator.Config) { c.WebhookSecretFile = dir + "/none" }, "--webhook-secret-file: stat "},
	} {
		cfg := coordinator.Config{
			ID: "n1", DataDir: dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
			DeadLetterWebhook: "https://example.org/dead", DeadLetterCommand: script, WebhookSecretFile: secret,
		}
		c.set(&cfg)
		err := cfg.Validate()
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
}

func TestAWebhookToAPrivateAddressIsRefusedAtSubmissionUnlessAllowed(t *testing.T) {
	t.Parallel()
	c, stop := runWith(t, coordinator.Config{
		DataDir: t.TempDir(), MinFree: new(coordinator.MinFree), WebhookAllow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	})
	defer stop()
	for webhook, want := range map[string]string{
		"http://127.0.0.1:8080/":                  "", // the replica listens on loopback
		"http://localhost:8080/":                  "",
		"http://10.1.2.3/":                        "",
		"http://hooks.test/":                      "", // checked when it is called
		"http://10.2.0.1/":                        "webhook: address 10.2.0.1 is private (private network): allow it with dtaskd --webhook-allow 10.2.0.1/32",
		"http://169.254.169.254/latest/meta-data": "address 169.254.169.254 is private (link-local)",
		"http://0.0.0.0:7461/":                    "address 0.0.0.0 is private (unspecified)",
	} {
		job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "notified"})
		if err != nil {
			t.Fatal(err)
		}
		job.Header.Webhook = webhook
		_, err = c.Submit(t.Context(), job, client.SubmitOptions{Key: webhook})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", webhook, err)
		case want != "" && (!errors.Is(err, client.ErrRefused) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want ErrRefused: %q", webhook, err, want)
		}
	}
}
