package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/dtask/dtask/coordinator/logstore"
)

// Names of the stores.
const (
	storeBolt = "raft-boltdb"
	storeWAL  = "raft-wal"
)

// walStore keeps entries in raft-wal. Term and vote, which change with elections
// only, stay where they are in the product.
type walStore struct {
	logstore.Backend // for Get and Set

	log *wal.WAL
}

func newWALStore(dir string, stable logstore.Backend) (*walStore, error) {
	dir = filepath.Join(dir, "wal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	log, err := wal.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return &walStore{stable, log}, nil
}

// FirstIndex implements logstore.Backend, as do those that follow.
func (s *walStore) FirstIndex() (uint64, error) { return s.log.FirstIndex() } //nolint:wrapcheck // raft compares errors

func (s *walStore) LastIndex() (uint64, error) { return s.log.LastIndex() } //nolint:wrapcheck // as above

func (s *walStore) GetLog(index uint64, log *raft.Log) error { return s.log.GetLog(index, log) } //nolint:wrapcheck // as above

func (s *walStore) StoreLogs(logs []*raft.Log) error { return s.log.StoreLogs(logs) } //nolint:wrapcheck // as above

func (s *walStore) DeleteRange(first, last uint64) error { return s.log.DeleteRange(first, last) } //nolint:wrapcheck // as above

func (s *walStore) Close() error { return errors.Join(s.log.Close(), s.Backend.Close()) }
