package logstore

import (
	"errors"
	"fmt"
)

var (
	// ErrHang is the cause of a StoreError when a call took longer than
	// Config.HangTimeout.
	ErrHang = errors.New("the store does not respond")
	// ErrClosing is returned by a compaction that stops because Config.Closing was
	// closed. The next compaction deletes the remaining entries.
	ErrClosing = errors.New("logstore: closing")
)

// StoreError is passed to Config.Fatal when a store fails or hangs. The process must
// exit: after a failed write the content of the disk is unknown.
type StoreError struct {
	Op  string // the call that failed
	Err error
}

// Error implements error.
func (e *StoreError) Error() string { return fmt.Sprintf("raft store: %s: %v", e.Op, e.Err) }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// DamageError reports that stored data is not what was written: a checksum does not
// match, or a file does not have its format. The replica must not serve from it.
// Nothing is deleted.
type DamageError struct {
	Path   string // the damaged file or directory; "" for an entry in memory or on the wire
	Detail string // what was found
}

// Error implements error.
func (e *DamageError) Error() string {
	if e.Path == "" {
		return "damaged data: " + e.Detail
	}
	return fmt.Sprintf("%s is damaged: %s; this replica must not serve from it", e.Path, e.Detail)
}
