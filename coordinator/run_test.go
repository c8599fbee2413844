package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/spec"
)

// run starts a replica of a cluster of one on a directory, and returns a client with a
// timeout of 10 s. stop stops the replica and waits.
func run(t *testing.T, dir string, limit coordinator.MinFree) (c *client.Client, stop func()) {
	t.Helper()
	return runWith(t, coordinator.Config{DataDir: dir, MinFree: &limit})
}

// runWith is run with other settings.
func runWith(t *testing.T, cfg coordinator.Config) (c *client.Client, stop func()) {
	t.Helper()
	cfg.ID, cfg.Listen = "n1", "127.0.0.1:0"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	report := cfg.Started
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		cfg.Started = func(listen, http string) {
			if report != nil {
				report(listen, http)
			}
			started <- listen
		}
		done <- coordinator.Run(ctx, cfg)
	}()
	select {
	case address := <-started:
		c, err := client.New(client.Config{Addrs: []string{address}, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c, func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the replica stopped with %v", err)
			}
		}
	case err := <-done:
		cancel()
		t.Fatalf("the replica did not start: %v", err)
		return nil, nil
	}
}

// A user who shares the machine must learn that the others may use the cluster.
func TestAReplicaWithoutTLSLogsThatItIsOpenToItsMachine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // the replica has ended when it is read
	_, stop := runWith(t, coordinator.Config{DataDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	stop()
	if !strings.Contains(log.String(), "every user of this machine may run commands as the user of the workers; dtaskd init makes") {
		t.Errorf("got %s", &log)
	}
}

func TestAReplicaWithANearlyFullDiskRefusesNewJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "early"})
	if err != nil {
		t.Fatal(err)
	}
	c, stop := run(t, dir, coordinator.MinFree{})
	early, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "early"})
	if err != nil {
		t.Fatal(err)
	}
	stop()

	c, stop = run(t, dir, coordinator.MinFree{Percent: 100})
	defer stop()
	again, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "early"})
	if err != nil || again.ID != early.ID {
		t.Errorf("a known key returned %+v, %v", again, err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "late"}); err == nil || !strings.Contains(err.Error(), "disk nearly full") {
		t.Errorf("a new job gave %v, want disk nearly full", err)
	}
	if _, err := c.Cancel(t.Context(), early.ID, "", "enough"); err != nil {
		t.Errorf("cancelling returned %v", err)
	}
}

// The directory is of the build before, which wrote format 2. It is refused before
// anything else is opened, and it is neither changed nor quarantined, not even with
// --auto-rejoin.
func TestADirectoryOfTheFormerFormatIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	files := map[string]string{
		"identity.json": `{"version": 2, "server_id": "n1", "instance": "00112233445566778899aabbccddeeff", "cluster_id": "c", "stored": true}`,
		"raft.db":       "a log of the former format",
		"history.db":    "a history of the former format",
		"lock":          "",
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := coordinator.Run(t.Context(), coordinator.Config{
		ID: "n1", DataDir: dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), AutoRejoin: true,
	})
	if _, ok := errors.AsType[*datadir.FormatError](err); !ok || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("got %v, want an error that names the directory and a way out", err)
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s is now %q, %v", name, got, err)
		}
	}
	if kept, err := datadir.Quarantined(dir); err != nil || len(kept) != 0 {
		t.Errorf("quarantined: %q, %v", kept, err)
	}
}
