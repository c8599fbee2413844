package coordinator_test

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

// alone starts a replica and gives a client, the address of its metrics, and how
// to end it.
func alone(t *testing.T, dir string) (c *client.Client, metrics string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	addresses := make(chan [2]string, 1)
	done := make(chan error, 1)
	go func() {
		done <- coordinator.Run(ctx, coordinator.Config{
			ID: "n1", DataDir: dir, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), MinFree: new(coordinator.MinFree),
			Started: func(listen, http string) { addresses <- [2]string{listen, http} },
		})
	}()
	select {
	case at := <-addresses:
		c, err := client.New(client.Config{Addrs: []string{at[0]}, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c, "http://" + at[1] + "/metrics", func() {
			_ = c.Close()
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the replica ended with %v", err)
			}
		}
	case err := <-done:
		cancel()
		t.Fatalf("the replica did not start: %v", err)
		return nil, "", nil
	}
}

// metric gives the line of a metric.
func metric(t *testing.T, url, name string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %v, %s: %s", err, answer.Status, text)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no metric %s", name)
	return ""
}

func TestTheEndOfAJobIsToldAcrossARestart(t *testing.T) {
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
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "told"})
	if err != nil {
		t.Fatal(err)
	}
	job.Header.Webhook = receiver.URL
	dir := t.TempDir()
	c, metrics, stop := alone(t, dir)
	stored, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Cancel(t.Context(), stored.ID, "", "enough"); err != nil {
		t.Fatal(err)
	}
	first := <-ids
	if n, letters := metric(t, metrics, "dtask_notifications_pending"), metric(t, metrics, `dtask_dead_letters{type="(others)"}`); n != "1" || letters != "0" {
		t.Errorf("%s notices wait, %s dead letters; want 1, 0", n, letters)
	}
	stop()

	up.Store(true)
	_, metrics, stop = alone(t, dir)
	defer stop()
	for {
		select {
		case again := <-ids: // those that were on their way, too
			if again != first {
				t.Fatalf("told under the id %q, before under %q", again, first)
			}
		case <-time.After(10 * time.Millisecond):
		}
		if metric(t, metrics, "dtask_notifications_delivered_total") == "1" && metric(t, metrics, "dtask_notifications_pending") == "0" {
			return
		}
	}
}

func TestHooksThatCannotWorkAreRefusedWithTheirFlags(t *testing.T) {
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
		"all well":         {func(*coordinator.Config) {}, ""},
		"no URL":           {func(c *coordinator.Config) { c.DeadLetterWebhook = "/hook" }, `--dead-letter-webhook: "/hook" is no http or https URL`},
		"a password":       {func(c *coordinator.Config) { c.DeadLetterWebhook = "http://u:hush@a/" }, "--dead-letter-webhook: holds a user or a password"},
		"relative":         {func(c *coordinator.Config) { c.DeadLetterCommand = "hook" }, `--dead-letter-command: invalid path "hook": must be absolute`},
		"not there":        {func(c *coordinator.Config) { c.DeadLetterCommand = dir + "/none" }, "--dead-letter-command: stat "},
		"a folder":         {func(c *coordinator.Config) { c.DeadLetterCommand = dir }, "is not executable"},
		"not executable":   {func(c *coordinator.Config) { c.DeadLetterCommand = plain }, "is not executable; run chmod +x"},
		"no secret":        {func(c *coordinator.Config) { c.WebhookSecretFile = plain }, "must start with whsec_"},
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
			t.Errorf("%s: a password is shown: %v", name, err)
		}
	}
}
