package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

var (
	_ raft.LogStore    = (*Store)(nil)
	_ raft.StableStore = (*Store)(nil)
)

const (
	readStable  = "reading term or vote"
	writeStable = "storing term or vote"
)

// Set implements raft.StableStore: term and vote, with a checksum. The two parts of a
// vote are stored together (vote.go).
func (s *Store) Set(key, value []byte) error {
	if isVotePart(key) {
		return s.setVotePart(key, value)
	}
	err := s.call(writeStable, func() error { return s.backend.Set(key, sealValue(key, value)) })
	if err != nil {
		return s.unwind(err)
	}
	return nil
}

// Get implements raft.StableStore. The error of a missing key passes unchanged.
func (s *Store) Get(key []byte) ([]byte, error) {
	if isVotePart(key) {
		return s.getVotePart(key)
	}
	var stored []byte
	var missing error
	err := s.call(readStable, func() (err error) {
		stored, err = s.backend.Get(key)
		if errors.Is(err, raftboltdb.ErrKeyNotFound) {
			missing, err = err, nil
		}
		return err
	})
	switch {
	case err != nil:
		return nil, s.unwind(err)
	case missing != nil:
		return nil, missing
	}
	value, problem := openValue(key, stored)
	if problem != "" {
		return nil, s.unwind(s.fail(readStable, &DamageError{Path: s.path, Detail: problem}))
	}
	return value, nil
}

// SetUint64 implements raft.StableStore.
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		detail := fmt.Sprintf("%s has %d bytes, should have 8", key, len(value))
		return 0, s.unwind(s.fail(readStable, &DamageError{Path: s.path, Detail: detail}))
	}
	return binary.BigEndian.Uint64(value), nil
}
