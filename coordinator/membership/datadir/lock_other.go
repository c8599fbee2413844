//go:build !unix

package datadir

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock that ends with its process, two processes could
// share a directory.
func lockFile(*os.File) error { return errors.ErrUnsupported }

// unlockFile does nothing.
func unlockFile(*os.File) error { return nil }
