package mmap

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// resident returns how much of the shared mapping of a file is resident in this
// process.
func resident(t *testing.T, path string) (kilobytes string) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	here := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if strings.Contains(fields[0], "-") {
			here = fields[1] == "r--s" && fields[len(fields)-1] == path
		}
		if here && fields[0] == "Rss:" {
			return fields[1]
		}
	}
	t.Fatalf("%s is not mapped", path)
	return ""
}

func TestReleasedPagesAreNotResidentAndReadTheSame(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	own, err := unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE) // not shared: Release ignores it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(own) }()
	own[0] = 'x'
	if !bytes.Equal(m, content) {
		t.Fatal("the mapping differs from the file")
	}
	if err := Release(path); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m, content) || own[0] != 'x' {
		t.Error("the mapping changed")
	}
	if err := Release(path); err != nil {
		t.Fatal(err)
	}
	if got := resident(t, path); got != "0" {
		t.Errorf("%s kB are resident, want 0", got)
	}
}

func TestReleaseOfAMissingFileFails(t *testing.T) {
	t.Parallel()
	if err := Release(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error")
	}
}
