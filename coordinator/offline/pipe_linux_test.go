package offline

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A pipe is read once: the state, and then the history.
func TestABackupIsRestoredFromAPipe(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	file, err := os.ReadFile(backUp(t, m, h))
	if err != nil {
		t.Fatal(err)
	}
	for cut, complete := range map[int]bool{0: true, 1: false} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(pipe, file[:len(file)-cut], 0o600) }()
		cfg := restoring(t, pipe)
		done, err := Restore(t.Context(), cfg, time.Now())
		if (err == nil) != complete || complete && (done.History != 1 || done.Jobs != 2) {
			t.Errorf("without %d bytes: got %+v, %v", cut, done, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		if complete {
			wantJobs(t, historyOf(t, cfg.DataDir, 0), 1)
		} else if left, err := os.ReadDir(filepath.Dir(cfg.DataDir)); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}
