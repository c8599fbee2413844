//go:build unix

package tlsconf

import (
	"io/fs"
	"syscall"
)

// ownedByRoot reports whether root owns a file.
func ownedByRoot(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
