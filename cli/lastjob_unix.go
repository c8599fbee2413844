//go:build unix

package cli

import (
	"io/fs"
	"os"
	"syscall"
)

// openWithoutWaiting opens a file for reading. Unlike os.Open, it doesn't wait for the
// writer of a FIFO.
func openWithoutWaiting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) //nolint:gosec,wrapcheck // named by the user; the caller adds the context
}

// isOwn reports whether this user owns a file. The user may share DTASK_STATE_DIR.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) == int64(os.Geteuid())
}
