//go:build unix

package program

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFiles raises the limit of open files and connections to the hard limit, and
// returns it.
func RaiseFiles() (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("reading limit of open files: %w", err)
	}
	if l.Cur < l.Max {
		// Go has usually raised it already, but starts child processes with the former
		// limit. They inherit a limit that is set here.
		l.Cur = l.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return 0, fmt.Errorf("raising limit of open files: %w", err)
		}
	}
	return uint64(l.Cur), nil //nolint:unconvert,nolintlint // signed on some systems
}
