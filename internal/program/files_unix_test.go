//go:build unix

package program_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/internal/program"
)

func TestAProcessMayOpenAsManyFilesAsTheSystemAllows(t *testing.T) {
	// Not parallel: the limit is the process's.
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	low := l
	low.Cur = l.Max / 2
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	limit, err := program.RaiseFiles()
	if err != nil || limit != l.Max {
		t.Errorf("got %d, %v, want %d", limit, err, l.Max)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != l.Max {
		t.Errorf("the limit is %d, %v, want %d", now.Cur, err, l.Max)
	}
}
