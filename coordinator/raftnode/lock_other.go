//go:build !unix

package raftnode

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock that dies with its process, two processes could
// share a folder.
func lockFile(*os.File) error {
	return errors.ErrUnsupported
}

// unlockFile has nothing to give back.
func unlockFile(*os.File) error { return nil }
