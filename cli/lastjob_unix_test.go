//go:build unix

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadingAFIFODoesNotWait(t *testing.T) {
	t.Parallel()
	l := lastJob{dir: t.TempDir(), cluster: fakeCluster}
	if err := syscall.Mkfifo(l.path(), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := l.read(); err == nil || !strings.HasSuffix(err.Error(), "is not a regular file") {
		t.Errorf("got %q, %v", id, err)
	}
}

// otherOwner is a file of another user.
type otherOwner struct{ fs.FileInfo }

func (otherOwner) Sys() any { return &syscall.Stat_t{Uid: uint32(os.Geteuid()) + 1} } //nolint:gosec // user IDs fit

func TestAFileOfAnotherUserIsNotTheCallers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("42\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !isOwn(info) || isOwn(otherOwner{info}) {
		t.Errorf("got own %t, another's own %t; want true, false", isOwn(info), isOwn(otherOwner{info}))
	}
}
