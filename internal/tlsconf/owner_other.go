//go:build !unix

package tlsconf

import "io/fs"

// ownedByRoot reports whether root owns a file: this system has no root.
func ownedByRoot(fs.FileInfo) bool { return false }
