package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"
)

// Reader reads the stores of a data directory that is not in use. Unlike Open it
// changes nothing, so that an operator can look into a directory before they decide
// what to do with it.
type Reader struct {
	dir      string
	contents *Contents
	bolt     *raftboltdb.BoltStore // nil if the directory has no store
	// committed is the highest committed index of the entries that were read.
	committed uint64
}

// OpenReader inspects the stores of a data directory and opens them for reading. It
// returns a DamageError if Inspect does.
func OpenReader(dir string) (*Reader, error) {
	contents, err := Inspect(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{dir: dir, contents: contents}
	path := filepath.Join(dir, FileName)
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return r, nil //nolint:nilerr // Inspect has reported everything but a missing file
	}
	r.bolt, err = raftboltdb.New(raftboltdb.Options{
		Path: path, BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: time.Second}, MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, openError(path, err)
	}
	return r, nil
}

// Kind returns where the entries are; "" if the store is new.
func (r *Reader) Kind() Kind { return r.contents.kind }

// Bounds returns the indexes of the first and the last entry; 0 if the log is empty.
func (r *Reader) Bounds() (first, last uint64) { return r.contents.First, r.contents.Last }

// Torn reports that the last write of the log was not finished. Open removes it.
func (r *Reader) Torn() bool { return r.contents.wal.torn != "" }

// Term returns the current term, and the last vote: its term and its candidate. A value
// that was never stored is zero.
func (r *Reader) Term() (term, voteTerm uint64, candidate string, err error) {
	if term, err = r.number(keyTerm); err != nil {
		return 0, 0, "", err
	}
	vote, err := r.Value(keyVote) // Inspect has verified its length
	if err != nil || len(vote) < voteTermLen {
		return term, 0, "", err
	}
	return term, binary.BigEndian.Uint64(vote), string(vote[voteTermLen:]), nil
}

// Value returns a value of the stable store; nil if it was never stored.
func (r *Reader) Value(key []byte) ([]byte, error) {
	if r.bolt == nil {
		return nil, nil
	}
	stored, err := r.bolt.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", readStable, err)
	}
	value, problem := openValue(key, stored)
	if problem != "" {
		return nil, &DamageError{Path: r.path(), Detail: problem}
	}
	return value, nil
}

func (r *Reader) number(key []byte) (uint64, error) {
	value, err := r.Value(key)
	switch {
	case err != nil || value == nil:
		return 0, err
	case len(value) != 8:
		return 0, &DamageError{Path: r.path(), Detail: fmt.Sprintf("%s has %d bytes, should have 8", key, len(value))}
	}
	return binary.BigEndian.Uint64(value), nil
}

// Terms returns the terms of the first and the last entry, and verifies all entries; zero
// if the log is empty. An entry that is damaged or missing is a DamageError.
func (r *Reader) Terms() (first, last uint64, err error) {
	err = r.Entries(0, func(entry *raft.Log) error {
		if first == 0 {
			first = entry.Term
		}
		last = entry.Term
		return nil
	})
	return first, last, err
}

func (r *Reader) path() string { return filepath.Join(r.dir, FileName) }

// Entries calls f with every entry from an index on, in order and verified, and stops
// at its first error. f must not keep the entry; it may keep the data. An entry that is
// damaged or missing is a DamageError.
func (r *Reader) Entries(from uint64, f func(*raft.Log) error) error {
	from = max(from, r.contents.First)
	if r.contents.Last == 0 || from > r.contents.Last {
		return nil
	}
	next := from
	take := func(log *raft.Log) error {
		committed, err := takeCommitted(log)
		r.committed = max(r.committed, committed)
		problem := Verify(log)
		switch {
		case err != nil:
			problem = fmt.Sprintf("entry %d: %v", log.Index, err)
		case log.Index != next:
			problem = fmt.Sprintf("entry %d is stored as entry %d", log.Index, next)
		}
		if problem != "" {
			return &DamageError{Path: r.dir, Detail: problem}
		}
		next++
		return f(log)
	}
	read := r.boltEntries
	if r.contents.kind == WAL {
		read = r.segmentEntries
	}
	if err := read(from, take); err != nil {
		return err
	}
	if next != r.contents.Last+1 {
		return &DamageError{Path: r.dir, Detail: fmt.Sprintf("entry %d is missing", next)}
	}
	return nil
}

func (r *Reader) boltEntries(from uint64, take func(*raft.Log) error) error {
	entries := chunks{r.bolt}
	for index := from; index <= r.contents.Last; index++ {
		var log raft.Log
		if err := entries.GetLog(index, &log); err != nil {
			return &DamageError{Path: r.path(), Detail: fmt.Sprintf("entry %d: %v", index, err)}
		}
		if err := take(&log); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) segmentEntries(from uint64, take func(*raft.Log) error) error {
	for _, info := range r.contents.wal.list.Segments {
		if !info.SealTime.IsZero() && info.MaxIndex < from {
			continue
		}
		if err := readEntries(segmentPath(filepath.Join(r.dir, segmentsDir), info), info, func(log *raft.Log) error {
			if log.Index < max(from, info.MinIndex) || log.Index > r.contents.Last || !info.SealTime.IsZero() && log.Index > info.MaxIndex {
				return nil
			}
			return take(log)
		}); err != nil {
			return err
		}
	}
	return nil
}

// readEntries calls f with the entries of a segment that was inspected.
func readEntries(path string, info types.SegmentInfo, f func(*raft.Log) error) error {
	content, err := os.ReadFile(path) //nolint:gosec // a name in the data directory
	if errors.Is(err, os.ErrNotExist) && info.SealTime.IsZero() {
		return nil // created with its first batch
	}
	if err != nil {
		return fmt.Errorf("reading a segment of the log: %w", err)
	}
	var codec raftwal.BinaryCodec
	for at, entries := 0, 0; ; {
		b, err := parseBatch(content, at, entries)
		if err != nil {
			return nil //nolint:nilerr // the end: the inspection found no damage
		}
		for _, offset := range b.entries {
			_, size, _ := parseFrameHeader(content, int(offset))
			var log raft.Log
			if err := codec.Decode(content[int(offset)+frameHeader:][:size], &log); err != nil {
				return &DamageError{Path: path, Detail: fmt.Sprintf("the entry at byte %d: %v", offset, err)}
			}
			if err := f(&log); err != nil {
				return err
			}
		}
		at, entries = b.end, entries+len(b.entries)
		if b.index > 0 {
			return nil
		}
	}
}

// Close closes the stores.
func (r *Reader) Close() error {
	if r.bolt == nil {
		return nil
	}
	if err := r.bolt.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", r.path(), err)
	}
	return nil
}
