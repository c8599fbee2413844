//go:build unix

package program

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFiles lets the process open as many files and connections as the system
// allows it, and gives their number: the hard limit.
func RaiseFiles() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	if l.Cur < l.Max {
		// Most often Go has done it already, and gives the programs that this one
		// starts the limit from before; what is set here they inherit.
		l.Cur = l.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return 0, fmt.Errorf("raising the limit of open files: %w", err)
		}
	}
	return uint64(l.Cur), nil //nolint:unconvert,nolintlint // it has a sign on some systems
}
