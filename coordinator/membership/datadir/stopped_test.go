package datadir

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnOrderlyStopIsKnownOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wantOrderly := func(last uint64, want bool) {
		t.Helper()
		if orderly, err := TakeStopped(dir, last); err != nil || orderly != want {
			t.Errorf("orderly: %v, %v; want %v", orderly, err, want)
		}
	}
	wantOrderly(7, false)
	if err := MarkStopped(dir, 7); err != nil {
		t.Fatal(err)
	}
	wantOrderly(7, true)
	wantOrderly(7, false) // it has run since, and may have crashed

	if err := MarkStopped(dir, 7); err != nil {
		t.Fatal(err)
	}
	wantOrderly(6, false) // of another log
	if err := os.WriteFile(filepath.Join(dir, StoppedName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOrderly(0, false)
}
