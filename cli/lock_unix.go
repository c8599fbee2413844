//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits until no other process has locked a file, and locks it until it is closed.
// Some network file systems have no locks; what they store is not protected.
func lockFile(file *os.File) error {
	err := syscall.EINTR
	for errors.Is(err, syscall.EINTR) {
		err, _ = syscall.Flock(int(file.Fd()), syscall.LOCK_EX).(syscall.Errno) //nolint:errorlint,gosec // a descriptor fits an int
	}
	if err == 0 || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EOPNOTSUPP) {
		return nil
	}
	return &os.PathError{Op: "lock", Path: file.Name(), Err: err}
}
