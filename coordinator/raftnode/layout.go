package raftnode

import (
	"fmt"
	"path/filepath"
)

// LogStore says where the entries of the log are.
type LogStore string

// The stores of the log. Term and vote are in raft.db, whichever it is.
const (
	// LogBolt keeps the entries in raft.db, in pieces (ADR-0020).
	LogBolt LogStore = "bolt"
	// LogWAL keeps them in segments of raft-wal (ADR-0024).
	LogWAL LogStore = "wal"
)

// Validate refuses what is no store. The empty one is LogBolt.
func (s LogStore) Validate() error {
	switch s {
	case "", LogBolt, LogWAL:
		return nil
	}
	return fmt.Errorf("there is no log store %q; it must be %s or %s", string(s), LogBolt, LogWAL)
}

// orDefault is the store that s stands for.
func (s LogStore) orDefault() LogStore {
	if s == "" {
		return LogBolt
	}
	return s
}

// keyLayout is in the bucket of term and vote, and says how the entries are stored. A
// store without it was written before there were pieces: each entry is one value,
// under its index, and it stays so.
var keyLayout = []byte("Layout")

// The values of keyLayout. A version that does not know one refuses the folder.
const (
	layoutPieces = 1 // in pieces, in raft.db
	layoutWAL    = 2 // in the segments of raft-wal
)

// layoutOf is the layout of a store that is new.
func layoutOf(store LogStore) byte {
	if store == LogWAL {
		return layoutWAL
	}
	return layoutPieces
}

// OtherStoreError says that the entries of a folder are in another store than the one
// that this replica was started with.
type OtherStoreError struct {
	Dir        string
	Have, Want LogStore
}

// Error implements error.
func (e *OtherStoreError) Error() string {
	return fmt.Sprintf("data folder %s keeps its log in the store %s, and this replica was started with --log-store=%s: "+
		"start it with --log-store=%s; a replica comes to another store only with an empty folder, by rejoining its cluster", e.Dir, e.Have, e.Want, e.Have)
}

// keptIn refuses a folder that keeps its entries in another store. One that holds nothing
// yet can have either; a replica that joins holds nothing before its first entry.
func (s *storeState) keptIn(dir string, want LogStore, holds bool) error {
	have := LogBolt
	if s.layout == layoutWAL {
		have = LogWAL
	}
	if want = want.orDefault(); have == want || !holds {
		return nil
	}
	return &OtherStoreError{Dir: filepath.Clean(dir), Have: have, Want: want}
}

// readLayout reads the value of keyLayout, nil if there is none.
func (s *storeState) readLayout(path string, stored []byte) error {
	if stored == nil {
		return nil
	}
	value, problem := openValue(keyLayout, stored)
	switch {
	case problem != "":
		return &DamageError{Path: path, Detail: fmt.Sprintf("%s is not readable: %s", keyLayout, problem)}
	case len(value) != 1 || value[0] != layoutPieces && value[0] != layoutWAL:
		return fmt.Errorf("%s has a layout that this version does not know (%x): it was written by a newer one; start that one", path, value)
	}
	s.layout = value[0]
	return nil
}

// markLayout says in raft.db how its entries are stored, before there is the first.
func markLayout(db Backend, state *storeState, want LogStore) error {
	layout := layoutOf(want)
	if state.last != 0 || state.layout == layout {
		return nil
	}
	if err := db.Set(keyLayout, sealValue(keyLayout, []byte{layout})); err != nil {
		return fmt.Errorf("marking the layout of the store: %w", err)
	}
	state.layout = layout
	return nil
}
