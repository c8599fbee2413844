package logstore

import (
	"fmt"
	"path/filepath"
)

// Kind names where the entries of the log are stored.
type Kind string

// The kinds of log store. Term and vote are in raft.db in either case.
const (
	// Bolt stores the entries in raft.db, in chunks (ADR-0020).
	Bolt Kind = "bolt"
	// WAL stores them in segments of raft-wal (ADR-0024).
	WAL Kind = "wal"
)

// Validate rejects an unknown kind. The empty kind means Bolt.
func (k Kind) Validate() error {
	switch k {
	case "", Bolt, WAL:
		return nil
	}
	return fmt.Errorf("unknown log store %q: must be %s or %s", string(k), Bolt, WAL)
}

// orDefault returns the kind that k means.
func (k Kind) orDefault() Kind {
	if k == "" {
		return Bolt
	}
	return k
}

// keyLayout is stored beside term and vote and identifies how the entries are stored.
var keyLayout = []byte("Layout")

// The values of keyLayout. A program that does not know a value refuses the directory.
const (
	layoutChunks = 1 // in chunks, in raft.db
	layoutWAL    = 2 // in segments of raft-wal
)

// layoutOf returns the layout of a new store.
func layoutOf(kind Kind) byte {
	if kind == WAL {
		return layoutWAL
	}
	return layoutChunks
}

// KindError reports that the entries of a data directory are in another kind of store
// than the one that was configured.
type KindError struct {
	Dir        string
	Have, Want Kind
}

// Error implements error.
func (e *KindError) Error() string {
	return fmt.Sprintf("data directory %s uses log store %s, but --log-store=%s is set: start the replica with --log-store=%s; "+
		"to change the store, rejoin the cluster with an empty data directory", e.Dir, e.Have, e.Want, e.Have)
}

// CheckKind returns a KindError if the directory stores its entries in another kind of
// store. A directory without state accepts either kind: a joining replica has no entry
// yet.
func (c *Contents) CheckKind(dir string, want Kind, hasState bool) error {
	have := Bolt
	if c.layout == layoutWAL {
		have = WAL
	}
	if want = want.orDefault(); have == want || !hasState {
		return nil
	}
	return &KindError{Dir: filepath.Clean(dir), Have: have, Want: want}
}

// readLayout reads the value of keyLayout; nil if the key is absent.
func (c *Contents) readLayout(path string, stored []byte) error {
	if stored == nil {
		return nil
	}
	value, problem := openValue(keyLayout, stored)
	switch {
	case problem != "":
		return &DamageError{Path: path, Detail: fmt.Sprintf("%s is not readable: %s", keyLayout, problem)}
	case len(value) != 1 || value[0] != layoutChunks && value[0] != layoutWAL:
		return fmt.Errorf("%s has unknown layout %x: it was written by a newer version of dtaskd; start that version", path, value)
	}
	c.layout = value[0]
	return nil
}

// writeLayout records the layout in raft.db before the first entry is stored.
func (c *Contents) writeLayout(db Backend, want Kind) error {
	layout := layoutOf(want)
	if c.Last != 0 || c.layout == layout {
		return nil
	}
	if err := db.Set(keyLayout, sealValue(keyLayout, []byte{layout})); err != nil {
		return fmt.Errorf("storing the layout of the log store: %w", err)
	}
	c.layout = layout
	return nil
}
