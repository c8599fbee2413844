package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// bbolt keeps at least two values in a page, and up to four in the last one, which it
// rewrites completely with each value that is added. Entries of 64 KiB are therefore
// written between four and five times each. So an entry is stored in chunks, of which
// only the last few are rewritten:
//
//	key     index of the entry × 2^16 + number of the chunk, from 0
//	chunk   chunkSize bytes of the data; the last is shorter, and may be empty
//	filler  a chunk without data after the last one, which nothing reads
//
// The first chunk also has the entry's term, type, checksum and time. The checksum is
// that of the whole entry. Changing this format breaks existing logs.
const (
	// chunkSize makes two chunks, with their overhead, fill eight pages of 4 KiB.
	// Smaller ones cost more in system calls and in a scattered file than they save in
	// bytes (ADR-0020).
	chunkSize = 16_000
	chunkBits = 16
	// fillers is how many values without data may follow the last chunk of a
	// transaction: as many as bbolt leaves together in a page that is full. See fill.
	fillers = 4
	// minFilledTail is the bytes of data in the last chunks of a transaction from which
	// it gets fillers: writing these again costs more than two pages for fillers.
	minFilledTail = 8 << 10
	// maxChunkedIndex is the first index that has no key; no log reaches it.
	maxChunkedIndex = 1 << (64 - chunkBits)
)

// errEntryTooLarge is the error of an entry with more chunks than there are numbers. No
// entry is: proposals are a thousand times smaller.
var errEntryTooLarge = errors.New("the entry has too many chunks")

// chunks is a Backend that stores entries in chunks in another one.
type chunks struct{ Backend }

func firstChunk(index uint64) uint64 { return index << chunkBits }

func lastChunk(index uint64) uint64 { return index<<chunkBits | (1<<chunkBits - 1) }

// entryOf returns the index of the entry to which a key of the log belongs.
func entryOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) >> chunkBits }

// FirstIndex implements Backend.
func (c chunks) FirstIndex() (uint64, error) {
	key, err := c.Backend.FirstIndex()
	return key >> chunkBits, err //nolint:wrapcheck // Store explains a Backend's errors
}

// LastIndex implements Backend.
func (c chunks) LastIndex() (uint64, error) {
	key, err := c.Backend.LastIndex()
	return key >> chunkBits, err //nolint:wrapcheck // as above
}

// StoreLogs implements Backend: all chunks of all entries in one transaction.
func (c chunks) StoreLogs(logs []*raft.Log) error {
	count := 0
	for _, log := range logs {
		count += len(log.Data)/chunkSize + 1
	}
	stored, parts := make([]*raft.Log, 0, count+fillers), make([]raft.Log, count+fillers)
	for _, log := range logs {
		if len(log.Data)/chunkSize >= 1<<chunkBits-fillers || log.Index >= maxChunkedIndex {
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
	return c.Backend.StoreLogs(fill(stored, parts[len(stored):])) //nolint:wrapcheck // as above
}

// fill appends fillers, for which it has memory, if the next transaction would rewrite
// much data without them. That transaction rewrites the page at the end of the log, which
// has up to four values: up to 64,000 bytes of data, or four fillers. They belong to the
// last entry and are deleted with it.
func fill(stored []*raft.Log, memory []raft.Log) []*raft.Log {
	bytes := 0
	for _, part := range stored[max(0, len(stored)-fillers):] {
		bytes += len(part.Data)
	}
	if bytes < minFilledTail {
		return stored
	}
	for i := range memory[:fillers] {
		memory[i].Index = stored[len(stored)-1].Index + 1
		stored = append(stored, &memory[i])
	}
	return stored
}

// GetLog implements Backend. An entry that lacks a chunk is not found: it may have been
// deleted meanwhile, which Store knows.
func (c chunks) GetLog(index uint64, log *raft.Log) error {
	if index >= maxChunkedIndex {
		return raft.ErrLogNotFound
	}
	key := firstChunk(index)
	if err := c.chunk(key, log); err != nil {
		return err
	}
	log.Index = index
	var next raft.Log // its buffer is reused for each chunk
	for last := len(log.Data); last == chunkSize; {
		key++
		if key == lastChunk(index) {
			return errEntryTooLarge
		}
		if err := c.chunk(key, &next); err != nil {
			return err
		}
		log.Data = append(log.Data, next.Data...)
		last = len(next.Data)
	}
	return nil
}

// chunk reads one chunk and verifies that it is stored under its own key.
func (c chunks) chunk(key uint64, chunk *raft.Log) error {
	if err := c.Backend.GetLog(key, chunk); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if chunk.Index != key || len(chunk.Data) > chunkSize {
		return fmt.Errorf("chunk %d has %d bytes and is chunk %d of entry %d",
			key&(1<<chunkBits-1), len(chunk.Data), chunk.Index&(1<<chunkBits-1), chunk.Index>>chunkBits)
	}
	return nil
}

// DeleteRange implements Backend.
func (c chunks) DeleteRange(first, last uint64) error {
	return c.Backend.DeleteRange(firstChunk(first), lastChunk(min(last, maxChunkedIndex-1))) //nolint:wrapcheck // as above
}
