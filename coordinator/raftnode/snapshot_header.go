package raftnode

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/dtask/dtask/coordinator/logstore"
)

// The header before the FSM's bytes in a snapshot: magic with version, index and term
// of the last entry that the state contains, its termHistory, and a CRC32C of all of
// these. Changing it breaks existing snapshots. Version 1 has no history.
const (
	snapshotMagic   = "DTASKSN2"
	snapshotMagicV1 = "DTASKSN1"
	fixedHeader     = len(snapshotMagic) + 8 + 8
	maxHeader       = fixedHeader + 8 + 4 + maxTerms*spanLen + 4
)

// snapshotHeader describes the state in a snapshot.
type snapshotHeader struct {
	index, term uint64
	terms       termHistory
}

func (h *snapshotHeader) encode() []byte {
	b := append(make([]byte, 0, fixedHeader+8+4+len(h.terms.list)*spanLen+4), snapshotMagic...)
	b = binary.BigEndian.AppendUint64(b, h.index)
	b = binary.BigEndian.AppendUint64(b, h.term)
	b = h.terms.appendTo(b)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readHeader reads a header and nothing after it.
func readHeader(source io.Reader) (h snapshotHeader, err error) {
	var b []byte
	next := func(n int) (part []byte) {
		if err == nil {
			b = append(b, make([]byte, n)...)
			part = b[len(b)-n:]
			_, err = io.ReadFull(source, part)
		}
		return part
	}
	next(fixedHeader)
	if err != nil {
		return h, fmt.Errorf("reading snapshot header: %w", err)
	}
	magic, numbers := string(b[:len(snapshotMagic)]), b[len(snapshotMagic):]
	h.index, h.term = binary.BigEndian.Uint64(numbers), binary.BigEndian.Uint64(numbers[8:])
	var spans []byte
	switch magic {
	case snapshotMagicV1:
		h.terms.from = h.index + 1
	case snapshotMagic:
		if size := next(8 + 4); err == nil {
			h.terms.from = binary.BigEndian.Uint64(size)
			count := binary.BigEndian.Uint32(size[8:])
			if count > maxTerms {
				return h, &logstore.DamageError{Detail: fmt.Sprintf("the snapshot's header has %d terms, at most %d are possible", count, maxTerms)}
			}
			spans = next(int(count) * spanLen)
		}
	default:
		return h, &logstore.DamageError{Detail: fmt.Sprintf("snapshot starts with %q, should start with %q", magic, snapshotMagic)}
	}
	body := len(b)
	sum := next(4)
	if err != nil {
		return h, fmt.Errorf("reading snapshot header: %w", err)
	}
	if crc32.Checksum(b[:body], castagnoli) != binary.BigEndian.Uint32(sum) {
		return h, &logstore.DamageError{Detail: "the checksum of the snapshot's header does not match"}
	}
	h.terms.list, err = decodeSpans(spans)
	return h, err
}
