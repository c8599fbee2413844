package logstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// keySegments is stored beside term and vote, and has raft-wal's list of its segments:
// which exist, which part of each is valid, and which one is appended to. raft-wal
// itself would store the list in one more bbolt file, in which nothing has a checksum.
var keySegments = []byte("Segments")

// segmentList stores the list of segments in raft.db, with a checksum. It implements
// types.MetaStore. raft-wal also changes the list in a goroutine of its own, and only
// logs its errors; the first is kept for the next StoreLogs.
type segmentList struct {
	db      Backend
	path    string // of raft.db
	failure atomic.Pointer[error]
}

// Load implements types.MetaStore.
func (l *segmentList) Load(string) (types.PersistentState, error) {
	stored, err := l.db.Get(keySegments)
	if err != nil {
		return types.PersistentState{}, fmt.Errorf("reading the list of segments: %w", err)
	}
	return decodeSegments(l.path, stored)
}

// CommitState implements types.MetaStore.
func (l *segmentList) CommitState(state types.PersistentState) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: l.path, Detail: fmt.Sprint(r)}
		}
		l.fail(err)
	}()
	text, err := json.Marshal(state)
	if err == nil {
		err = l.db.Set(keySegments, sealValue(keySegments, text))
	}
	if err != nil {
		return fmt.Errorf("storing the list of segments: %w", err)
	}
	return nil
}

// fail keeps the first error.
func (l *segmentList) fail(err error) {
	if err != nil {
		l.failure.CompareAndSwap(nil, &err)
	}
}

// err returns the first error that raft-wal only logged.
func (l *segmentList) err() error {
	if failure := l.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

var errNoStable = errors.New("term and vote are not in the list of segments")

// GetStable implements types.MetaStore. It is never called.
func (l *segmentList) GetStable([]byte) ([]byte, error) { return nil, errNoStable }

// SetStable implements types.MetaStore. It is never called.
func (l *segmentList) SetStable([]byte, []byte) error { return errNoStable }

// Close implements types.MetaStore. walStore closes raft.db.
func (l *segmentList) Close() error { return nil }

// decodeSegments decodes the value of keySegments.
func decodeSegments(path string, stored []byte) (state types.PersistentState, err error) {
	value, problem := openValue(keySegments, stored)
	if problem == "" {
		if err := json.Unmarshal(value, &state); err != nil {
			problem = err.Error()
		}
	}
	if problem != "" {
		return state, &DamageError{Path: path, Detail: fmt.Sprintf("%s is not readable: %s", keySegments, problem)}
	}
	return state, nil
}
