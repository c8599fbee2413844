package logstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	bolterrors "go.etcd.io/bbolt/errors"
)

// GetLog implements raft.LogStore. An entry that differs from what was stored, or is
// missing between others, is damage.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	const op = "reading an entry"
	missing, err := s.read(op, index, log)
	hole := false
	if err == nil && missing {
		missing, hole, err = s.readMissing(op, index, log)
	}
	var problem string
	switch {
	case err != nil:
		return s.unwind(err)
	case hole:
		problem = fmt.Sprintf("entry %d is missing between others", index)
	case missing:
		return raft.ErrLogNotFound
	default:
		problem = Verify(log)
	}
	if problem == "" && log.Index != index {
		problem = fmt.Sprintf("entry %d is stored as entry %d", log.Index, index)
	}
	if problem != "" {
		return s.unwind(s.fail(op, &DamageError{Path: s.path, Detail: problem}))
	}
	if !s.started.Load() && s.running.Load() { // not while check reads the log
		s.counters.sinceSnapshot.Add(uint64(len(log.Data)))
	}
	return nil
}

// read reads an entry, unless it is missing.
func (s *Store) read(op string, index uint64, log *raft.Log) (missing bool, err error) {
	err = s.call(op, func() error {
		err := s.backend.GetLog(index, log)
		missing = errors.Is(err, raft.ErrLogNotFound)
		switch {
		case err == nil || missing:
			return nil
		case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, raftwal.ErrClosed):
			return err
		default: // bytes that cannot be decoded
			return &DamageError{Path: s.path, Detail: fmt.Sprintf("entry %d: %v", index, err)}
		}
	})
	return missing, err
}

// readMissing reads a missing entry again and reports whether it should exist. A
// replica that is deposed reads entries for its followers while the next leader's
// entries replace its own: an entry may be missing when it is read first, and exist
// afterwards. So the entry is a hole only if it is missing while it is within the
// bounds: the bounds are read first, and no deletion is in progress from then on.
func (s *Store) readMissing(op string, index uint64, log *raft.Log) (missing, hole bool, err error) {
	ended := s.deletions.ended.Load() // before started, so that equal counts mean none in progress
	started := s.deletions.started.Load()
	first, last, err := s.bounds()
	if err != nil {
		return false, false, err
	}
	inside := first != 0 && first <= index && index <= last
	if missing, err = s.read(op, index, log); err != nil || !missing {
		return missing, false, err
	}
	return true, inside && started == ended && s.deletions.started.Load() == started, nil
}

// check reads the whole log, so that damage is found now rather than when a follower
// needs an entry.
func (s *Store) check() error {
	first, last, err := s.bounds()
	if err != nil {
		return err
	}
	var log raft.Log
	for index := first; index != 0 && index <= last; index++ {
		log = raft.Log{Data: log.Data[:0]} // reuses the buffer
		if err := s.GetLog(index, &log); err != nil {
			return fmt.Errorf("checking the log: %w", err)
		}
	}
	return nil
}
