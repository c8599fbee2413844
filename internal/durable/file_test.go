package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/durable"
)

// contents returns the files of a directory, whose temporary names are "temporary".
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name := e.Name()
		if strings.HasPrefix(name, ".temp-") {
			name = "temporary"
		}
		found[name] = string(text)
	}
	return found
}

func TestAFileGetsItsNameWhenItIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := durable.CreateFile(path, ".temp-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	for _, text := range []string{"an attempt", "new"} {
		if err := f.Restart(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(1, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != "ew" {
		t.Errorf("read back %q, %v", text, err)
	}
	if got := contents(t, dir); len(got) != 2 || got["a"] != "old" || got["temporary"] != "new" {
		t.Errorf("before it is kept: %q", got)
	}
	if err := f.Keep(); err != nil {
		t.Fatal(err)
	}
	f.Discard() // keeps it
	if got := contents(t, dir); len(got) != 1 || got["a"] != "new" || f.Path() != path {
		t.Errorf("afterwards: %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
}

func TestAFileThatIsNotKeptLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := durable.CreateFile(filepath.Join(dir, "a"), ".temp-")
	if err != nil {
		t.Fatal(err)
	}
	f.Discard()
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if f, err = durable.CreateFile(taken, ".temp-"); err != nil {
		t.Fatal(err)
	}
	if err := durable.Cause(f.Keep()); err == nil || strings.Contains(err.Error(), dir) {
		t.Errorf("replacing a directory: got %v", err)
	}
	f.Discard()
	_, err = durable.CreateFile(filepath.Join(dir, "gone", "a"), ".temp-")
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(durable.Cause(err).Error(), dir) {
		t.Errorf("without a directory: got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v", entries, err)
	}
}
