//go:build unix

package raftnode

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the exclusive lock of file, which ends with the last descriptor
// of it, so also when the process is killed.
func lockFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits an int
}

// unlockFile gives the lock back, also where a program that is being started still
// has the descriptor.
func unlockFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_UN) //nolint:gosec // a descriptor fits an int
}
