package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/dtask/dtask/internal/durable"
)

// If the batch at the end of the log is unreadable, either it was never finished,
// because the power failed, or it was, and a bit flipped later: the bytes look the
// same. So the index of the last stored entry is written to a file beside the log,
// after each batch and without a sync. This mark survives the process, and the machine
// if the system had time to write it; it is synced when the log is closed or its end
// deleted. The mark is never above what was stored, so a log that ends before it is
// damaged (tail.go). raft.db has such a mark, too, with the number of its last
// transaction (bolt_mark.go).
//
//	file    magic 4, checksum 4 of the index, index 8

const (
	markName  = "last"
	markMagic = 0x6474_6c6e
	markSize  = 16
)

// mark is the file with the index of the last stored entry.
type mark struct {
	file *os.File

	mu   sync.Mutex // guards what follows, and orders writes
	last uint64
}

// readMark reads the mark in a directory; ok is false if it is missing or unreadable.
func readMark(dir, name string) (last uint64, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a name in the data directory
	if err != nil {
		return 0, false
	}
	return decodeMark(b)
}

func decodeMark(b []byte) (last uint64, ok bool) {
	if len(b) != markSize || binary.LittleEndian.Uint32(b) != markMagic ||
		binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[8:]), true
}

// openMark opens the mark in a directory, for a log whose last write is last.
func openMark(dir, name string, last uint64) (*mark, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a name in the data directory
	if err != nil {
		return nil, fmt.Errorf("opening the mark of the last entry: %w", err)
	}
	m := &mark{file: file}
	if err := m.setDurably(last); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := durable.SyncDir(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("syncing the log directory: %w", err), file.Close())
	}
	return m, nil
}

// raise records that the log is stored up to an entry.
func (m *mark) raise(last uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(last)
}

// lower records, before the end of the log is deleted, that no entry after last will
// remain. It is durable when it returns.
func (m *mark) lower(last uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last <= last {
		return nil
	}
	return m.setDurably(last)
}

func (m *mark) set(last uint64) error {
	var b [markSize]byte
	binary.LittleEndian.PutUint32(b[:], markMagic)
	binary.LittleEndian.PutUint64(b[8:], last)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	if _, err := m.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("writing the mark of the last entry: %w", err)
	}
	m.last = last
	return nil
}

func (m *mark) setDurably(last uint64) error {
	if err := m.set(last); err != nil {
		return err
	}
	if err := m.file.Sync(); err != nil {
		return fmt.Errorf("syncing the mark of the last entry: %w", err)
	}
	return nil
}

// close syncs the mark and closes its file.
func (m *mark) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.file.Sync(), m.file.Close()); err != nil {
		return fmt.Errorf("closing the mark of the last entry: %w", err)
	}
	return nil
}
