package history

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A full disk says nothing about the file: quarantining it would lose the history.
func TestAFullDiskIsNoDamage(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if err := openError(&os.PathError{Op: "write", Path: "history.db", Err: cause}); isDamaged(err) {
			t.Errorf("%v is taken for damage", cause)
		}
	}
	for _, err := range []error{errors.New("unexpected page"), errors.New("checksum error")} {
		if !isDamaged(openError(err)) {
			t.Errorf("%v is not taken for damage", err)
		}
	}
}
