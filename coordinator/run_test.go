package coordinator_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/spec"
)

// run starts a replica that is alone, on a folder, and gives a client of it that does
// not wait for long. stop ends the replica and waits.
func run(t *testing.T, dir string, limit coordinator.MinFree) (c *client.Client, stop func()) {
	t.Helper()
	return runWith(t, coordinator.Config{DataDir: dir, MinFree: &limit})
}

// runWith is run with further settings.
func runWith(t *testing.T, cfg coordinator.Config) (c *client.Client, stop func()) {
	t.Helper()
	cfg.ID, cfg.Listen, cfg.Logger = "n1", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	tell := cfg.Started
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		cfg.Started = func(listen, http string) {
			if tell != nil {
				tell(listen, http)
			}
			started <- listen
		}
		done <- coordinator.Run(ctx, cfg)
	}()
	select {
	case address := <-started:
		c, err := client.New(client.Config{Addrs: []string{address}, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c, func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the replica ended with %v", err)
			}
		}
	case err := <-done:
		cancel()
		t.Fatalf("the replica did not start: %v", err)
		return nil, nil
	}
}

func TestAReplicaWhoseDiskIsNearlyFullTakesNoNewJobs(t *testing.T) {
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
		t.Errorf("a known key gave %+v, %v", again, err)
	}
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{Key: "late"}); err == nil || !strings.Contains(err.Error(), "disk nearly full") {
		t.Errorf("a new job gave %v, want disk nearly full", err)
	}
	if _, err := c.Cancel(t.Context(), early.ID, "", "enough"); err != nil {
		t.Errorf("a cancel gave %v", err)
	}
}
