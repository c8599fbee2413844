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

// A batch that cannot be read at the end of the log was either never finished, since
// the power was cut, or it was, and a bit flipped later: the bytes look the same. So
// the index of the last entry that was stored is noted beside the log, after each batch
// and without a sync. The note outlives the process, and the machine if the system had
// the time to write it; it is synced where the log is closed or its end removed. What
// it says has been stored is never above what was, so that a log that ends before it is
// damaged.
//
//	file    magic 4, checksum 4 of the index, index 8
//
// A note that cannot be read says nothing.

const (
	noteName  = "last"
	noteMagic = 0x6474_6c6e
	noteSize  = 16
)

// note is the file with the index of the last entry that was stored.
type note struct {
	file *os.File

	mu   sync.Mutex // guards what follows, and orders writes
	last uint64
}

// readNote reads the note in a folder; 0 says nothing.
func readNote(dir string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, noteName)) //nolint:gosec // a name in our own folder
	if err != nil || len(b) != noteSize || binary.LittleEndian.Uint32(b) != noteMagic {
		return 0
	}
	if binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[8:])
}

// openNote opens the note in a folder, for a log that ends at last.
func openNote(dir string, last uint64) (*note, error) {
	file, err := os.OpenFile(filepath.Join(dir, noteName), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a name in our own folder
	if err != nil {
		return nil, fmt.Errorf("opening the note of the last entry: %w", err)
	}
	n := &note{file: file}
	if err := n.durably(last); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := durable.SyncDir(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("syncing the folder of the log: %w", err), file.Close())
	}
	return n, nil
}

// stored notes that the log is stored up to an entry.
func (n *note) stored(last uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.write(last)
}

func (n *note) write(last uint64) error {
	var b [noteSize]byte
	binary.LittleEndian.PutUint32(b[:], noteMagic)
	binary.LittleEndian.PutUint64(b[8:], last)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	if _, err := n.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("noting the last entry: %w", err)
	}
	n.last = last
	return nil
}

// below notes, before the end of the log is removed, that there will be nothing behind
// an entry: it is on the disk when it returns.
func (n *note) below(last uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last <= last {
		return nil
	}
	return n.durably(last)
}

func (n *note) durably(last uint64) error {
	if err := n.write(last); err != nil {
		return err
	}
	if err := n.file.Sync(); err != nil {
		return fmt.Errorf("syncing the note of the last entry: %w", err)
	}
	return nil
}

// close syncs the note and closes its file.
func (n *note) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(n.file.Sync(), n.file.Close()); err != nil {
		return fmt.Errorf("closing the note of the last entry: %w", err)
	}
	return nil
}
