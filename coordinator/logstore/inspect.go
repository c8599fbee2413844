package logstore

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

// FileName is the name of the bbolt file in a data directory. Changing it loses
// existing data.
const FileName = "raft.db"

// Owns reports whether a name in a data directory is one of the log.
func Owns(name string) bool { return strings.HasPrefix(name, FileName) || name == segmentsDir }

// Keys and buckets that raft and raft-boltdb use in raft.db.
var (
	bucketLogs = []byte("logs")
	bucketConf = []byte("conf")
	keyTerm    = []byte("CurrentTerm")
)

// Contents is what a closed store contains: raft.db, and the segments beside it if they
// hold the entries.
type Contents struct {
	First, Last uint64 // indexes of the log; 0 if it is empty

	term  uint64
	voted bool
	kind  Kind // where the entries are; "" if the store is new
	wal   walState
	bolt  tail // of raft.db
}

// Empty reports whether the store contains nothing that a cluster could rely on. A
// bootstrap stores term 1 before its first entry. A crash between the two leaves only
// the term, and the bootstrap is repeated.
func (c *Contents) Empty() bool { return c.Last == 0 && c.term <= 1 && !c.voted }

// Inspect reads the stores of a data directory that is not in use. It returns an error
// if something cannot be read. It changes nothing.
func Inspect(dir string) (*Contents, error) {
	path := filepath.Join(dir, FileName)
	c := &Contents{}
	if err := c.inspectBolt(path); err != nil {
		return nil, err
	}
	if c.kind != WAL {
		return c, checkFiles(filepath.Join(dir, segmentsDir), c.wal.list)
	}
	if c.Last > 0 {
		return nil, &DamageError{Path: path, Detail: fmt.Sprintf("it has entries up to %d, which should be in %s", c.Last, segmentsDir)}
	}
	var err error
	c.wal, err = inspectWAL(dir, c.wal.list)
	c.First, c.Last = c.wal.first, c.wal.last
	return c, err
}

// inspectBolt reads a closed raft.db. bbolt scans the whole file when it opens it for
// writing, in a goroutine whose panic cannot be recovered; the same pages are read here
// first, where a panic becomes a DamageError. A missing or zero-length file is an empty
// store.
func (c *Contents) inspectBolt(path string) (err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && info.Size() == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspecting the log store: %w", err)
	}
	if c.bolt, err = verifyPages(path); err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &DamageError{Path: path, Detail: fmt.Sprint(r)}
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return openError(path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error { return c.read(path, tx) })
}

func (c *Contents) read(path string, tx *bbolt.Tx) error {
	conf := tx.Bucket(bucketConf)
	if conf != nil {
		if err := c.readKind(path, conf.Get(keyKind)); err != nil {
			return err
		}
		if stored := conf.Get(keySegments); stored != nil {
			var err error
			if c.wal.list, err = decodeSegments(path, stored); err != nil {
				return err
			}
		}
	}
	if logs := tx.Bucket(bucketLogs); logs != nil {
		cursor := logs.Cursor()
		// Directories of older builds never get here: their format number differs
		// (package datadir).
		if key, _ := cursor.First(); key != nil && c.kind == "" {
			return &DamageError{Path: path, Detail: "it has log entries, but no kind of log store"}
		}
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
			if len(key) != 8 {
				return &DamageError{Path: path, Detail: fmt.Sprintf("an entry has a key of %d bytes", len(key))}
			}
			index := entryOf(key)
			if c.First == 0 {
				c.First = index
			}
			if index < c.Last {
				return &DamageError{Path: path, Detail: fmt.Sprintf("entry %d comes after entry %d", index, c.Last)}
			}
			c.Last = index
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
		c.term = binary.BigEndian.Uint64(value)
	}
	if stored := conf.Get(keyVote); stored != nil {
		if problem := voteProblem(stored); problem != "" {
			return &DamageError{Path: path, Detail: problem}
		}
		c.voted = true
	}
	return nil
}

// openError explains an error of bbolt.Open.
func openError(path string, err error) error {
	var pathError *fs.PathError
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is locked by another process: %w", path, err)
	case errors.As(err, &pathError):
		return fmt.Errorf("opening the log store: %w", err)
	default:
		return &DamageError{Path: path, Detail: err.Error()}
	}
}
