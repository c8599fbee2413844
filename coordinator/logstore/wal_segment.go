package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// raft-wal takes whatever it cannot read in the last segment for the end of the log,
// and of what it can read it verifies only the last batch: after a flipped bit in the
// middle of a segment it silently drops everything that follows. So every segment is
// parsed here before raft-wal opens it.
//
// The format is that of raft-wal's segments of version 0, in little endian:
//
//	file    header of 32 bytes, then batches, then zeros
//	header  magic 4, reserved 3, version 1, index of the first entry 8, segment id 8, codec 8
//	batch   frames of entries; if the segment is full a frame with its index; a commit frame
//	frame   kind 1, reserved 3, length of the content 4 (commit: CRC-32C of the batch); padded to 8
//	index   offset of each entry's frame, 4 each
//
// The first batch of a segment starts with the header. A batch is one write and one
// sync.

const (
	segmentHeader = 32
	segmentMagic  = 0x58eb6b0d // reserved and version are 0
	frameHeader   = 8
	offsetSize    = 4

	entryFrame  = 1
	indexFrame  = 2
	commitFrame = 3

	// maxFrame is the largest entry that raft-wal stores.
	maxFrame = 64 << 20
)

// segmentID identifies a segment, in its header and in the list of segments.
type segmentID struct{ base, id, codec uint64 }

// segmentContent is what parseSegment found.
type segmentContent struct {
	segment segmentID // from its header; only if it has a batch
	entries uint64    // in complete batches
	end     int       // of the last complete batch
	index   int       // offset of its index, if the last batch has one; 0: it is not full
	torn    bool      // the bytes after the end are not all zeros
}

// errNoBatch is the error of bytes that are not a batch.
var errNoBatch = errors.New("not a batch")

// errLaterBatch is damage before the end.
var errLaterBatch = errors.New("a later batch is complete")

// parseSegment parses a segment up to its last complete batch. It returns an error if
// the segment can only be damaged. A torn segment may be damaged too, or its last batch
// was never finished.
func parseSegment(content []byte) (segmentContent, error) {
	var s segmentContent
	var offsets []uint32
	for s.index == 0 {
		b, err := parseBatch(content, s.end, len(offsets))
		if err != nil {
			break
		}
		if s.end == 0 {
			s.segment = parseSegmentHeader(content)
		}
		offsets = append(offsets, b.entries...)
		if b.index > 0 && !hasOffsets(content[b.index:], offsets) {
			return s, fmt.Errorf("its index at %d does not match its %d entries", b.index, len(offsets))
		}
		s.end, s.index, s.entries = b.end, b.index, uint64(len(offsets))
	}
	s.torn = !allZeros(content[s.end:])
	if s.torn && s.index == 0 && hasLaterBatch(content, s.end) {
		return s, fmt.Errorf("it cannot be read from byte %d on, in the batch after entry %d of the segment, and %w", s.end, s.entries, errLaterBatch)
	}
	return s, nil
}

// batch is what was written and synced at once.
type batch struct {
	entries []uint32 // offsets of their frames
	index   int      // offset of the content of its index; 0: it has none
	end     int      // of its last frame
}

// parseBatch parses the batch at an offset. before is the number of entries before it.
func parseBatch(content []byte, at, before int) (batch, error) {
	var b batch
	next := at
	if at == 0 {
		if len(content) < segmentHeader || binary.LittleEndian.Uint64(content) != segmentMagic {
			return b, errNoBatch
		}
		next = segmentHeader
	}
	for {
		kind, value, ok := parseFrameHeader(content, next)
		switch {
		case !ok || b.index > 0 && kind != commitFrame:
			return b, errNoBatch
		case kind == entryFrame:
			b.entries = append(b.entries, uint32(next)) //nolint:gosec // a segment is below 4 GiB; see readSegment
		case kind == indexFrame:
			if int(value) != offsetSize*(before+len(b.entries)) || value == 0 {
				return b, errNoBatch
			}
			b.index = next + frameHeader
		default:
			if len(b.entries) == 0 && b.index == 0 || crc32.Checksum(content[at:next], castagnoli) != value {
				return b, errNoBatch
			}
			b.end = next + frameHeader
			return b, nil
		}
		next = frameEnd(next, kind, value)
	}
}

// parseFrameHeader parses the header of a frame, which must end within the content.
func parseFrameHeader(content []byte, at int) (kind byte, value uint32, ok bool) {
	if at < 0 || len(content)-at < frameHeader {
		return 0, 0, false
	}
	header := content[at:]
	kind, value = header[0], binary.LittleEndian.Uint32(header[4:])
	if kind < entryFrame || kind > commitFrame || header[1] != 0 || header[2] != 0 || header[3] != 0 {
		return 0, 0, false
	}
	if kind != commitFrame && (value > maxFrame || frameEnd(at, kind, value) > len(content)) {
		return 0, 0, false
	}
	return kind, value, true
}

// frameEnd returns the offset of the next frame.
func frameEnd(at int, kind byte, value uint32) int {
	if kind == commitFrame {
		return at + frameHeader
	}
	return at + frameHeader + (int(value)+frameHeader-1)/frameHeader*frameHeader
}

func parseSegmentHeader(content []byte) segmentID {
	return segmentID{
		base: binary.LittleEndian.Uint64(content[8:]), id: binary.LittleEndian.Uint64(content[16:]),
		codec: binary.LittleEndian.Uint64(content[24:]),
	}
}

func hasOffsets(index []byte, offsets []uint32) bool {
	for i, want := range offsets {
		if binary.LittleEndian.Uint32(index[i*offsetSize:]) != want {
			return false
		}
	}
	return true
}

// zeroPage is what allZeros compares with: much faster than a loop.
var zeroPage [4096]byte

func allZeros(content []byte) bool {
	for len(content) > len(zeroPage) {
		if !bytes.Equal(content[:len(zeroPage)], zeroPage[:]) {
			return false
		}
		content = content[len(zeroPage):]
	}
	return bytes.Equal(content, zeroPage[:len(content)])
}

// maxPasses bounds the work of hasLaterBatch: how many times it may compute a checksum
// over all that it searches. Each frame of an unfinished batch may start what looks
// like a batch, and a batch has a multiple of MaxBatch entries at most.
const maxPasses = 4 * MaxBatch

// hasLaterBatch reports whether a complete batch follows an offset at which none can be
// parsed. Then the bytes at the offset were complete once, since a batch is written
// after the one before is synced. No batch is a part of another one: the checksum of
// the larger one differs.
func hasLaterBatch(content []byte, from int) bool {
	budget := maxPasses * (len(content) - from)
	for at := (from + frameHeader) / frameHeader * frameHeader; at+frameHeader <= len(content); at += frameHeader {
		if binary.NativeEndian.Uint64(content[at:]) == 0 {
			continue
		}
		kind, value, ok := parseFrameHeader(content, at)
		next := at
		for ok && kind != commitFrame {
			next = frameEnd(next, kind, value)
			budget -= frameHeader
			kind, value, ok = parseFrameHeader(content, next)
		}
		if !ok || next == at {
			continue
		}
		if budget -= next - at; budget < 0 {
			return true // crafted to look like many batches: no unfinished batch does
		}
		if crc32.Checksum(content[at:next], castagnoli) == value {
			return true
		}
	}
	return false
}
