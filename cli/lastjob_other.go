//go:build !unix

package cli

import (
	"io/fs"
	"os"
)

// openWithoutWaiting opens a file for reading.
func openWithoutWaiting(path string) (*os.File, error) {
	return os.Open(path) //nolint:gosec,wrapcheck // named by the user; the caller adds the context
}

// isOwn is true: file owners are checked on Unix only.
func isOwn(fs.FileInfo) bool { return true }
