package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Names on disk. Changing one loses the data of existing folders.
const (
	storeName    = "raft.db"
	snapshotsDir = "snapshots"
	tmpSuffix    = ".tmp"
	stateName    = "state.bin" // in the folder of a snapshot
)

// Keys and buckets that raft and raft-boltdb use in raft.db.
var (
	bucketLogs  = []byte("logs")
	bucketConf  = []byte("conf")
	keyTerm     = []byte("CurrentTerm")
	keyVoteTerm = []byte("LastVoteTerm")
)

// storeState is what a closed store holds: raft.db and, if the entries are there, the
// segments beside it.
type storeState struct {
	first, last uint64 // indexes of the log; 0 when it is empty
	term        uint64
	voted       bool
	layout      byte // how the entries are stored; see keyLayout
	wal         walState
}

// empty says whether the store remembers nothing that a cluster could rely on. A
// founder writes term 1 before its first entry; a crash between the two leaves
// a term alone, and the founding is repeated.
func (s *storeState) empty() bool { return s.last == 0 && s.term <= 1 && !s.voted }

// Folder is what Inspect found in a data folder.
type Folder struct {
	// HasState says that it holds raft state: a log, a vote, a later term or a snapshot.
	HasState bool
	// Last is the index of the last entry that it stands for.
	Last uint64

	store storeState
}

// Inspect looks at the data folder dir, which must not be in use. It is an error if what it
// holds cannot be read, or if the entries are in another store than is wanted; nothing is
// changed or deleted.
func Inspect(dir string, want LogStore) (*Folder, error) {
	snapshots, err := snapshotNames(dir)
	if err != nil {
		return nil, err
	}
	state, err := inspect(filepath.Join(dir, storeName))
	if err != nil {
		return nil, err
	}
	f := &Folder{HasState: len(snapshots) > 0 || !state.empty(), Last: state.last, store: state}
	if err := state.keptIn(dir, want, f.HasState); err != nil {
		return nil, err
	}
	for _, name := range snapshots {
		var term, index uint64
		if _, err := fmt.Sscanf(name, "%d-%d-", &term, &index); err == nil {
			f.Last = max(f.Last, index)
		}
	}
	return f, nil
}

// snapshotNames lists the finished snapshots of dir, readable or not.
func snapshotNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), tmpSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// inspect looks at a closed raft.db, and at the segments beside it.
func inspect(path string) (storeState, error) {
	state, err := inspectBolt(path)
	if err != nil {
		return state, err
	}
	dir := filepath.Dir(path)
	if state.layout != layoutWAL {
		return state, knownFiles(filepath.Join(dir, segmentsDir), state.wal.list)
	}
	if state.last > 0 {
		return state, &DamageError{Path: path, Detail: fmt.Sprintf("it has entries up to %d, and they should be in %s", state.last, segmentsDir)}
	}
	state.wal, err = inspectWAL(dir, state.wal.list)
	state.first, state.last = state.wal.first, state.wal.last
	return state, err
}

// inspectBolt walks a closed raft.db read-only. bbolt scans the whole file when it opens
// it for writing, and does so in a goroutine whose panic nobody can catch; the
// same pages are touched here first, where a panic becomes a DamageError. A
// missing or zero-length file is an empty store.
func inspectBolt(path string) (state storeState, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() == 0) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("looking at the raft store: %w", err)
	}
	if err := verifyPages(path); err != nil {
		return state, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: path, Detail: fmt.Sprint(r)}
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return state, openError(path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bbolt.Tx) error { return state.read(path, tx) })
	return state, err
}

func (s *storeState) read(path string, tx *bbolt.Tx) error {
	conf := tx.Bucket(bucketConf)
	if conf != nil {
		if err := s.readLayout(path, conf.Get(keyLayout)); err != nil {
			return err
		}
		if stored := conf.Get(keySegments); stored != nil {
			var err error
			if s.wal.list, err = readSegments(path, stored); err != nil {
				return err
			}
		}
	}
	if logs := tx.Bucket(bucketLogs); logs != nil {
		cursor := logs.Cursor()
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
			if len(key) != 8 {
				return &DamageError{Path: path, Detail: fmt.Sprintf("an entry has a key of %d bytes", len(key))}
			}
			index := s.entryOf(key)
			if s.first == 0 {
				s.first = index
			}
			if index < s.last {
				return &DamageError{Path: path, Detail: fmt.Sprintf("entry %d comes after entry %d", index, s.last)}
			}
			s.last = index
		}
	}
	if conf == nil {
		return nil
	}
	if stored := conf.Get(keyTerm); stored != nil {
		value, problem := openValue(keyTerm, stored)
		if problem != "" || len(value) != 8 {
			return &DamageError{Path: path, Detail: fmt.Sprintf("%s is not readable: %s", keyTerm, problem)}
		}
		s.term = binary.BigEndian.Uint64(value)
	}
	s.voted = conf.Get(keyVoteTerm) != nil
	return nil
}

// openError explains an error of bbolt.Open.
func openError(path string, err error) error {
	var pathError *fs.PathError
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is locked by another process: %w", path, err)
	case errors.As(err, &pathError):
		return fmt.Errorf("opening the raft store: %w", err)
	default:
		return &DamageError{Path: path, Detail: err.Error()}
	}
}
