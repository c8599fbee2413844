// Package programfile writes programs that tests start.
package programfile

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a file that is to be executed at once, such as a script, with its
// permissions. No process of this one is forked meanwhile: it would have the file open for
// writing until it executes its own program, and the kernel refuses to execute a file that
// is open for writing ("text file busy").
func Write(tb testing.TB, path, text string, mode os.FileMode) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		tb.Fatal(err)
	}
}
