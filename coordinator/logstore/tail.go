package logstore

import (
	"fmt"
	"log/slog"
)

// tail is how the last write of raft.db, or of the segments, was found. The mark beside
// each has the number of the last write that was finished: a transaction, or the index
// of an entry.
type tail struct {
	path       string
	unit       string // entry or transaction
	unreadable string // the place that cannot be read; "" if nothing is unreadable
	last       uint64 // number of the last write that can be read
	marked     uint64 // number in the mark; only if hasMark
	hasMark    bool
}

// check returns a DamageError if the last write was finished, or may have been, and
// cannot be read. The one rule for both stores:
//
//   - A mark is never above what was stored, so a tail that ends before it is damaged.
//   - A power failure explains an unfinished write, but not a missing mark: the mark was
//     durable before the first write, and is smaller than what a disk writes at once. If
//     both are unreadable, nothing shows that the write was not acknowledged.
func (t tail) check() error {
	switch {
	case t.hasMark && t.marked > t.last:
		return &DamageError{Path: t.path, Detail: fmt.Sprintf("the log can be read up to %s %d, but %s %d was stored", t.unit, t.last, t.unit, t.marked)}
	case t.unreadable != "" && !t.hasMark:
		return &DamageError{Path: t.path, Detail: fmt.Sprintf("%s cannot be read after %s %d, nor the mark that shows whether more was stored", t.unreadable, t.unit, t.last)}
	}
	return nil
}

// warn logs an unreadable last write that check accepted.
func (t tail) warn(log *slog.Logger) {
	if t.unreadable == "" {
		return
	}
	log.Warn("dropped an unreadable last write: unfinished if the power failed, otherwise possibly acknowledged",
		"path", t.path, "unreadable", t.unreadable, "unit", t.unit, "last", t.last, "marked", t.marked)
}
