//go:build !unix

package cli

import "os"

// lockFile does nothing: files are locked on Unix only.
func lockFile(*os.File) error { return nil }
