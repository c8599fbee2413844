package offline

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
)

// historyOf opens the history of a directory. Without a rate of the import, it runs until the
// test ends.
func historyOf(t *testing.T, dir string, rate int) *history.History {
	t.Helper()
	h, err := history.Open(history.Config{Path: filepath.Join(dir, historyName), Logger: slog.New(slog.DiscardHandler), ImportRate: rate})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// wantJobs checks that a history has the first jobs, and lacks none.
func wantJobs(t *testing.T, h *history.History, jobs fsm.JobID) {
	t.Helper()
	for id := range jobs {
		if head, ok, err := h.Find(id + 1); !ok || err != nil || head.State != fsm.JobCompleted {
			t.Errorf("job %d: %+v, %t, %v", id+1, head, ok, err)
		}
	}
	if h.Incomplete() {
		t.Error("the history is incomplete")
	}
}

// awaitImport waits until the jobs of a backup are imported.
func awaitImport(t *testing.T, h *history.History) {
	t.Helper()
	await(t, "the history is imported", func() bool {
		jobs, _ := h.ImportProgress()
		return jobs == 0
	})
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 2 min: %s", what)
		}
	}
}

func TestARestoredHistoryIsReadAtOnceAndImportedLater(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	set, _, _ := backupSet(t)
	for file, jobs := range map[string]fsm.JobID{backUp(t, m, h): 1, set: 2} {
		cfg := restoring(t, file)
		if _, err := Restore(t.Context(), cfg, time.Now()); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(cfg.DataDir, historyName+history.ImportSuffix)
		if info, err := os.Stat(kept); err != nil || info.Mode() != 0o600 {
			t.Errorf("the jobs to import: %v, %v", info, err)
		}
		restored := historyOf(t, cfg.DataDir, 0)
		wantJobs(t, restored, jobs)
		awaitImport(t, restored)
		wantJobs(t, restored, jobs)
		if s := restored.Stats(); s.Jobs != uint64(jobs) {
			t.Errorf("got %+v", s)
		}
		await(t, "the file of the imported jobs is removed", func() bool { // after the progress has ended
			_, err := os.Stat(kept)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
}

// A cluster is backed up and restored again before its history is imported.
func TestARestoredClusterIsRestoredAgainBeforeItsHistoryIsImported(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	for range 3 {
		cfg := restoring(t, backUp(t, m, h))
		done, err := Restore(t.Context(), cfg, time.Now())
		if err != nil || done.History != 1 {
			t.Fatalf("got %+v, %v", done, err)
		}
		h = historyOf(t, cfg.DataDir, 1) // byte per second
		wantJobs(t, h, 1)
		d, err := open(cfg.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		if m, _, err = d.replay(archived{}, 1<<62); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecoveryKeepsAHistoryThatIsBeingImported(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	cfg := restoring(t, backUp(t, m, h))
	if _, err := Restore(t.Context(), cfg, time.Now()); err != nil {
		t.Fatal(err)
	}
	plan, err := PlanRecovery(t.Context(), RecoverConfig{DataDir: cfg.DataDir, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(plan.Recover(time.Now()), plan.Close()); err != nil {
		t.Fatal(err)
	}
	recovered := historyOf(t, cfg.DataDir, 0)
	awaitImport(t, recovered)
	wantJobs(t, recovered, 1)
}
