package logstore

import (
	"cmp"
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

// keyKind is stored beside term and vote and names where the entries are.
var keyKind = []byte("LogStore")

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
	have, want := cmp.Or(c.kind, Bolt), cmp.Or(want, Bolt)
	if have == want || !hasState {
		return nil
	}
	return &KindError{Dir: filepath.Clean(dir), Have: have, Want: want}
}

// readKind decodes the value of keyKind; nil if the key is absent.
func (c *Contents) readKind(path string, stored []byte) error {
	if stored == nil {
		return nil
	}
	value, problem := openValue(keyKind, stored)
	if problem != "" {
		return &DamageError{Path: path, Detail: fmt.Sprintf("%s is not readable: %s", keyKind, problem)}
	}
	c.kind = Kind(value)
	if c.kind != Bolt && c.kind != WAL {
		return fmt.Errorf("%s has unknown log store %q: it was written by a newer version of dtaskd; start that version", path, value)
	}
	return nil
}

// setKind records the kind in raft.db before the first entry is stored.
func (c *Contents) setKind(db Backend, kind Kind) error {
	if kind = cmp.Or(kind, Bolt); c.Last != 0 || c.kind == kind {
		return nil
	}
	if err := db.Set(keyKind, sealValue(keyKind, []byte(kind))); err != nil {
		return fmt.Errorf("storing the kind of the log store: %w", err)
	}
	c.kind = kind
	return nil
}
