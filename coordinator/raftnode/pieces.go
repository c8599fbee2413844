package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// bbolt keeps at least two values in a page, and up to four in the last one, which it
// writes anew, whole, with each value that is added. Where an entry has 64 KiB, every
// one is so written between four and five times. So an entry is stored in pieces, of
// which only the last few are written again:
//
//	key     index of the entry × 2^16 + number of the piece, from 0
//	piece   pieceSize bytes of the data; the last is shorter, and may have none
//
// The first piece also holds what else the entry has: term, type, checksum and time. The
// checksum is that of the whole entry. Changing any of this breaks existing logs.
const (
	// pieceSize is such that two pieces, with what is around them, fill eight pages of
	// 4 KiB. Smaller ones cost more system calls, and a more scattered file, than they
	// save bytes (ADR-0020).
	pieceSize = 16_000
	pieceBits = 16
	// maxPiecesIndex is the first index that has no key: far away.
	maxPiecesIndex = 1 << (64 - pieceBits)
)

// errEntryTooLarge is an entry that has more pieces than there are numbers for. None
// gets this far: proposals are a thousand times smaller.
var errEntryTooLarge = errors.New("the entry has too many pieces")

// pieces is a Backend that stores entries in pieces in another.
type pieces struct{ Backend }

func firstPiece(index uint64) uint64 { return index << pieceBits }

func lastPiece(index uint64) uint64 { return index<<pieceBits | (1<<pieceBits - 1) }

// FirstIndex implements Backend.
func (p pieces) FirstIndex() (uint64, error) {
	key, err := p.Backend.FirstIndex()
	return key >> pieceBits, err //nolint:wrapcheck // a Backend's errors are explained by store
}

// LastIndex implements Backend.
func (p pieces) LastIndex() (uint64, error) {
	key, err := p.Backend.LastIndex()
	return key >> pieceBits, err //nolint:wrapcheck // as above
}

// StoreLogs implements Backend: all pieces of all entries in one transaction.
func (p pieces) StoreLogs(logs []*raft.Log) error {
	count := 0
	for _, log := range logs {
		count += len(log.Data)/pieceSize + 1
	}
	stored, parts := make([]*raft.Log, 0, count), make([]raft.Log, count)
	for _, log := range logs {
		if len(log.Data)/pieceSize >= 1<<pieceBits || log.Index >= maxPiecesIndex {
			return fmt.Errorf("entry %d of %d bytes: %w", log.Index, len(log.Data), errEntryTooLarge)
		}
		data := log.Data
		for key, more := firstPiece(log.Index), true; more; key++ {
			part := &parts[len(stored)]
			if key == firstPiece(log.Index) {
				*part = *log
			}
			part.Index, part.Data = key, data[:min(len(data), pieceSize)]
			stored = append(stored, part)
			more = len(part.Data) == pieceSize
			data = data[len(part.Data):]
		}
	}
	return p.Backend.StoreLogs(stored) //nolint:wrapcheck // as above
}

// GetLog implements Backend. An entry of which a piece is missing is not found: it may
// have been deleted meanwhile, and store knows whether it was.
func (p pieces) GetLog(index uint64, log *raft.Log) error {
	if index >= maxPiecesIndex {
		return raft.ErrLogNotFound
	}
	key := firstPiece(index)
	if err := p.piece(key, log); err != nil {
		return err
	}
	log.Index = index
	var next raft.Log // its room is used again for each piece
	for last := len(log.Data); last == pieceSize; {
		key++
		if key == lastPiece(index) {
			return errEntryTooLarge
		}
		if err := p.piece(key, &next); err != nil {
			return err
		}
		log.Data = append(log.Data, next.Data...)
		last = len(next.Data)
	}
	return nil
}

// piece reads one piece, which must say that it is what it is.
func (p pieces) piece(key uint64, piece *raft.Log) error {
	if err := p.Backend.GetLog(key, piece); err != nil {
		return err //nolint:wrapcheck // as above
	}
	if piece.Index != key || len(piece.Data) > pieceSize {
		return fmt.Errorf("piece %d has %d bytes and says that it is piece %d of entry %d",
			key&(1<<pieceBits-1), len(piece.Data), piece.Index&(1<<pieceBits-1), piece.Index>>pieceBits)
	}
	return nil
}

// DeleteRange implements Backend.
func (p pieces) DeleteRange(first, last uint64) error {
	return p.Backend.DeleteRange(firstPiece(first), lastPiece(min(last, maxPiecesIndex-1))) //nolint:wrapcheck // as above
}

// entryOf is the index of the entry that a key of the log belongs to.
func (s *storeState) entryOf(key []byte) uint64 {
	index := binary.BigEndian.Uint64(key)
	if s.layout == layoutPieces {
		return index >> pieceBits
	}
	return index
}
