package worker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestTheStoreKeepsNewerAndRecentCheckpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	const task = "c/1/2"
	for _, name := range []string{"1-9", "2-1", "2-2", "2-3", "3-1", ".2-1", "other"} {
		writeFile(t, filepath.Join(dir, task, name), name)
	}
	if err := errors.Join(s.removeOlder(task, 2, 2), s.removeOlder("c/9/9", 1, 1)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, task))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"2-2", "2-3", "3-1", "other"}; !slices.Equal(names, want) {
		t.Errorf("got files %v, want %v", names, want)
	}

	writeFile(t, filepath.Join(dir, "c", "1", "old", "1-1"), "x")
	long := time.Now().Add(-storeRetention - time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "c", "1", "old"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := s.removeExpired(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c", "1", "old")); !os.IsNotExist(err) {
		t.Errorf("expired checkpoint: got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, task, "2-2")); err != nil {
		t.Errorf("recent checkpoint: got %v", err)
	}
}

func TestAStoreMustExist(t *testing.T) {
	t.Parallel()
	w, err := New(Config{Join: []string{"127.0.0.1:1"}, Name: "w", WorkDir: t.TempDir(), CheckpointStore: filepath.Join(t.TempDir(), "not-mounted")})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("got no error without the store")
	}
}
