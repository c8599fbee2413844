package logstore

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the data and the size of a file durable, but not its modification
// time.
func syncData(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("syncing %s: %w", file.Name(), err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for again := true; again; again = errors.Is(failed, unix.EINTR) {
			failed = unix.Fdatasync(int(fd)) //nolint:gosec // a descriptor fits an int
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("syncing %s: %w", file.Name(), err)
	}
	return nil
}
