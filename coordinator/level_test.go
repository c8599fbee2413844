package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/fsm"
)

// later are the settings of a build that supports one level more.
func later(dir string) coordinator.Config {
	return coordinator.Config{
		DataDir: dir, Version: "v9.1.0", UpgradeAfter: time.Hour, Seams: coordinator.Seams{MaxLevel: fsm.MaxLevel + 1},
	}
}

// awaitLevel waits until the cluster has a level.
func awaitLevel(t *testing.T, c *client.Client, level fsm.Level) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := c.UpgradeStatus(ctx)
		if err == nil && fsm.Level(s.GetLevel()) == level {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the level is %d, want %d: %v", s.GetLevel(), level, err)
		}
	}
}

// awaitStoredLevel waits until a data directory has a level for the next start.
func awaitStoredLevel(t *testing.T, dir string, level fsm.Level) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(dir, datadir.IdentityName))
		if err != nil {
			t.Fatal(err)
		}
		var id struct{ Level fsm.Level }
		if err := json.Unmarshal(text, &id); err != nil {
			t.Fatal(err)
		}
		if id.Level == level {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the stored level is %d, want %d", id.Level, level)
		}
	}
}

// A downgrade after the end of an upgrade is refused, whether the directory names the
// level or the process ended before that was stored.
func TestADirectoryAboveTheLevelOfTheBuildIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg, snapshot := later(dir), func(context.Context) error { return nil }
	cfg.HTTP = "127.0.0.1:0"
	cfg.Seams.HTTP = func(next http.Handler, replica coordinator.Internals) http.Handler {
		snapshot = replica.Snapshot
		return next
	}
	c, stop := runWith(t, cfg)
	awaitLevel(t, c, fsm.MaxLevel+1) // a new cluster
	submitted(t, c)
	awaitStoredLevel(t, dir, fsm.MaxLevel+1)
	stop()

	refuse := func(version string) {
		t.Helper()
		err := coordinator.Run(t.Context(), coordinator.Config{
			ID: "n1", DataDir: dir, Listen: "127.0.0.1:0", Version: "v9.0.0", Logger: slog.New(slog.DiscardHandler), AutoRejoin: true,
		})
		level, ok := errors.AsType[*fsm.LevelError](err)
		if !ok || level.Level != fsm.MaxLevel+1 || level.Max != fsm.MaxLevel || level.Version != version {
			t.Errorf("got %v, want a LevelError of version %q", err, version)
		}
		if _, fatal := errors.AsType[*coordinator.FatalError](err); !fatal {
			t.Errorf("got %v, want a FatalError", err)
		}
		if kept, err := datadir.Quarantined(dir); err != nil || len(kept) != 0 {
			t.Errorf("quarantined: %q, %v", kept, err)
		}
	}
	refuse("v9.1.0")
	name := filepath.Join(dir, datadir.IdentityName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(text), `"level": `, `"unknown": `, 1)
	if err := os.WriteFile(name, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse("") // by the log

	c, stop = runWith(t, cfg)
	awaitLevel(t, c, fsm.MaxLevel+1)
	submitted(t, c)
	if err := snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.WriteFile(name, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse("") // by the snapshot

	c, stop = runWith(t, cfg)
	defer stop()
	awaitLevel(t, c, fsm.MaxLevel+1)
	submitted(t, c)
}
