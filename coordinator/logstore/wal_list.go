package logstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// keySegments is in the bucket of term and vote, and has raft-wal's list of its
// segments: which there are, what part of each counts, and which is appended to.
// raft-wal's own place for it is one more bbolt file, in which nothing has a checksum.
var keySegments = []byte("Segments")

// segmentList keeps the list of segments in raft.db, under a checksum. It implements
// types.MetaStore. raft-wal changes the list in a goroutine of its own, too, and only
// logs what fails there: that is kept here for the next entry that is to be stored.
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
	return readSegments(l.path, stored)
}

// CommitState implements types.MetaStore.
func (l *segmentList) CommitState(state types.PersistentState) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: l.path, Detail: fmt.Sprint(r)}
		}
		l.failed(err)
	}()
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("writing the list of segments: %w", err)
	}
	if err := l.db.Set(keySegments, sealValue(keySegments, text)); err != nil {
		return fmt.Errorf("writing the list of segments: %w", err)
	}
	return nil
}

// failed keeps the first error.
func (l *segmentList) failed(err error) {
	if err != nil {
		l.failure.CompareAndSwap(nil, &err)
	}
}

// err is what has failed where nobody was told.
func (l *segmentList) err() error {
	if failure := l.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

var errNotKeptHere = errors.New("term and vote are not in the list of segments")

// GetStable implements types.MetaStore. Nobody asks.
func (l *segmentList) GetStable([]byte) ([]byte, error) { return nil, errNotKeptHere }

// SetStable implements types.MetaStore. Nobody asks.
func (l *segmentList) SetStable([]byte, []byte) error { return errNotKeptHere }

// Close implements types.MetaStore. raft.db is closed by whoever opened it.
func (l *segmentList) Close() error { return nil }

// readSegments reads the value of keySegments.
func readSegments(path string, stored []byte) (state types.PersistentState, err error) {
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
