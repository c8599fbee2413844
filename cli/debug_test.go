package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unpacked returns the files of a debug bundle by name.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path) //nolint:gosec // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for archive := tar.NewReader(packed); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if head.Mode != 0o600 {
			t.Errorf("%s has mode %o", head.Name, head.Mode)
		}
		files[head.Name] = string(data)
	}
}

// A coordinator chooses the names of its files, and may not write outside of its directory.
func TestADebugBundleIsForItsOwnerAndStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	leader := newFakeLeader()
	a, _, stderr := benchSetup(t, leader)
	leader.addr = a.getenv("DTASK_ADDR") // before it is asked for its members
	a.dir = t.TempDir()
	if code := run(t.Context(), []string{"debug", "--out", "bundle.tar.gz"}, a); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	path := filepath.Join(a.dir, "bundle.tar.gz")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle: %v, %v", info.Mode(), err)
	}
	files := unpacked(t, path)
	for _, name := range []string{"dtask-debug/manifest.json", "dtask-debug/status.json"} {
		if files[name] == "" {
			t.Errorf("missing %s", name)
		}
		delete(files, name)
	}
	want := map[string]string{
		"dtask-debug/n1/status.json": "{}\n", "dtask-debug/n1/log.txt": "first\nsecond\n", "dtask-debug/n1/empty.txt": "", "dtask-debug/n1/cpu.pb.gz": "profile",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if left, err := filepath.Glob(filepath.Join(a.dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("the command left %v, %v", left, err)
	}
}

// The program tar warns about files from the future, and archive/tar rounds times to the nearest second.
func TestTheFilesOfADebugBundleAreNotFromTheFuture(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 19, 10, 50, int(900*time.Millisecond), time.UTC)
	var packed bytes.Buffer
	if err := newDebugBundle(nil, nil, at).write(&packed); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if head, err := tar.NewReader(unpacked).Next(); err != nil || head.ModTime.After(at) {
		t.Errorf("got %v, %v, want a time that is not after %v", head.ModTime, err, at)
	}
}
