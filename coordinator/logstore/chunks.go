package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// bbolt keeps at least two values in a page, and up to four in the last one, which it
// writes anew, whole, with each value that is added. Where an entry has 64 KiB, every
// one is so written between four and five times. So an entry is stored in chunks, of
// which only the last few are written again:
//
//	key     index of the entry × 2^16 + number of the piece, from 0
//	piece   chunkSize bytes of the data; the last is shorter, and may have none
//
// The first piece also holds what else the entry has: term, type, checksum and time.
// The checksum is that of the whole entry. Changing any of this breaks existing logs.
const (
	// chunkSize is such that two chunks, with what is around them, fill eight pages of
	// 4 KiB. Smaller ones cost more system calls, and a more scattered file, than they
	// save bytes (ADR-0020).
	chunkSize = 16_000
	chunkBits = 16
	// maxChunkedIndex is the first index that has no key: far away.
	maxChunkedIndex = 1 << (64 - chunkBits)
)

// errEntryTooLarge is an entry that has more chunks than there are numbers for. None
// gets this far: proposals are a thousand times smaller.
var errEntryTooLarge = errors.New("the entry has too many chunks")

// chunks is a Backend that stores entries in chunks in another.
type chunks struct{ Backend }

func firstChunk(index uint64) uint64 { return index << chunkBits }

func lastChunk(index uint64) uint64 { return index<<chunkBits | (1<<chunkBits - 1) }

// FirstIndex implements Backend.
func (p chunks) FirstIndex() (uint64, error) {
	key, err := p.Backend.FirstIndex()
	return key >> chunkBits, err //nolint:wrapcheck // a Backend's errors are explained by store
}

// LastIndex implements Backend.
func (p chunks) LastIndex() (uint64, error) {
	key, err := p.Backend.LastIndex()
	return key >> chunkBits, err //nolint:wrapcheck // as above
}

// StoreLogs implements Backend: all chunks of all entries in one transaction.
func (p chunks) StoreLogs(logs []*raft.Log) error {
	count := 0
	for _, log := range logs {
		count += len(log.Data)/chunkSize + 1
	}
	stored, parts := make([]*raft.Log, 0, count), make([]raft.Log, count)
	for _, log := range logs {
		if len(log.Data)/chunkSize >= 1<<chunkBits || log.Index >= maxChunkedIndex {
			return fmt.Errorf("entry %d of %d bytes: %w", log.Index, len(log.Data), errEntryTooLarge)
		}
		data := log.Data
		for key, more := firstChunk(log.Index), true; more; key++ {
			part := &parts[len(stored)]
			if key == firstChunk(log.Index) {
				*part = *log
			}
			part.Index, part.Data = key, data[:min(len(data), chunkSize)]
			stored = append(stored, part)
			more = len(part.Data) == chunkSize
			data = data[len(part.Data):]
		}
	}
	return p.Backend.StoreLogs(stored) //nolint:wrapcheck // as above
}

// GetLog implements Backend. An entry of which a piece is missing is not found: it may
// have been deleted meanwhile, and store knows whether it was.
func (p chunks) GetLog(index uint64, log *raft.Log) error {
	if index >= maxChunkedIndex {
		return raft.ErrLogNotFound
	}
	key := firstChunk(index)
	if err := p.chunk(key, log); err != nil {
		return err
	}
	log.Index = index
	var next raft.Log // its room is used again for each piece
	for last := len(log.Data); last == chunkSize; {
		key++
		if key == lastChunk(index) {
			return errEntryTooLarge
		}
		if err := p.chunk(key, &next); err != nil {
			return err
		}
		log.Data = append(log.Data, next.Data...)
		last = len(next.Data)
	}
	return nil
}

// piece reads one piece, which must say that it is what it is.
func (p chunks) chunk(key uint64, piece *raft.Log) error {
	if err := p.Backend.GetLog(key, piece); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if piece.Index != key || len(piece.Data) > chunkSize {
		return fmt.Errorf("piece %d has %d bytes and says that it is piece %d of entry %d",
			key&(1<<chunkBits-1), len(piece.Data), piece.Index&(1<<chunkBits-1), piece.Index>>chunkBits)
	}
	return nil
}

// DeleteRange implements Backend.
func (p chunks) DeleteRange(first, last uint64) error {
	return p.Backend.DeleteRange(firstChunk(first), lastChunk(min(last, maxChunkedIndex-1))) //nolint:wrapcheck // as above
}

// entryOf returns the index of the entry to which a key of the log belongs.
func entryOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) >> chunkBits }
