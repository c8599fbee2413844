package logstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
)

// boltMarkName is the file beside raft.db that has the number of its last transaction.
const boltMarkName = FileName + ".last"

// markedBolt is raft-boltdb's store, which records the number of its last transaction in
// a mark. bbolt takes the older of its two roots if the newer one is unreadable: the
// last transaction is then undone without an error, with the entries or the vote in it.
type markedBolt struct {
	Backend
	file *os.File // raft.db, for reading
	mark *mark

	mu sync.Mutex // held while a transaction is written and recorded, so that the mark names no unfinished one
}

// openMarkedBolt opens the mark of an open raft.db.
func openMarkedBolt(dir string, bolt Backend) (*markedBolt, error) {
	file, err := os.Open(filepath.Join(dir, FileName)) //nolint:gosec // a name in the data directory
	if err != nil {
		return nil, fmt.Errorf("opening the log store: %w", err)
	}
	m := &markedBolt{Backend: bolt, file: file}
	transaction, err := m.transaction()
	if err == nil {
		m.mark, err = openMark(dir, boltMarkName, transaction)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return m, nil
}

// transaction returns the number of the last finished transaction.
func (m *markedBolt) transaction() (uint64, error) {
	p := pages{file: m.file}
	if _, ok := p.newestRoot(); !ok {
		return 0, &DamageError{Path: m.file.Name(), Detail: "it has no readable root"}
	}
	return p.transaction, nil
}

func (m *markedBolt) write(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	transaction, err := m.transaction()
	if err != nil {
		return err
	}
	return m.mark.raise(transaction)
}

// Set implements Backend.
func (m *markedBolt) Set(key, value []byte) error {
	return m.write(func() error { return m.Backend.Set(key, value) })
}

// StoreLogs implements Backend.
func (m *markedBolt) StoreLogs(logs []*raft.Log) error {
	return m.write(func() error { return m.Backend.StoreLogs(logs) })
}

// DeleteRange implements Backend.
func (m *markedBolt) DeleteRange(first, last uint64) error {
	return m.write(func() error { return m.Backend.DeleteRange(first, last) })
}

// Close implements Backend.
func (m *markedBolt) Close() error {
	return errors.Join(m.Backend.Close(), m.mark.close(), m.file.Close())
}
