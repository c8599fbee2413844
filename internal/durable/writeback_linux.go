package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWriteback makes the system begin to write a range of a file to the disk, and does not
// wait. A file system that can't begin early only makes Sync take longer.
func beginWriteback(file *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(file.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE) //nolint:gosec // a small number
}
