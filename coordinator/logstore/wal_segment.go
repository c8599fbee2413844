package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// raft-wal takes whatever it cannot read in the segment that it appends to for the end
// of the log, and of what it can read it verifies the last batch only: a bit flipped in
// the midst of a segment makes it forget all that follows, without a word. So every
// segment is walked over here before raft-wal opens it.
//
// The format is that of raft-wal's segments of version 0, in little endian:
//
//	file    head of 32 bytes, then batches, then zeros
//	head    magic 4, reserved 3, version 1, index of the first entry 8, number of the segment 8, codec 8
//	batch   frames of entries, in a segment that is full a frame with its index, and one that commits
//	frame   kind 1, reserved 3, length of what follows 4 or, if it commits, the CRC-32C of the batch; padded to 8
//	index   where each entry's frame begins, 4 each
//
// The first batch of a segment begins with the head. A batch is one write and one sync.

const (
	segmentHead    = 32
	segmentMagic   = 0x58eb6b0d // and reserved and version are 0
	segmentVersion = 0
	frameHead      = 8
	offsetSize     = 4

	entryFrame  = 1
	indexFrame  = 2
	commitFrame = 3

	// maxFrame is the largest entry that raft-wal stores.
	maxFrame = 64 << 20
)

// segmentName identifies a segment, in its head and in the list of segments.
type segmentName struct{ base, id, codec uint64 }

// segmentContent is what a walk over the bytes of one has found.
type segmentContent struct {
	name    segmentName // of its head; only if there is a batch
	entries uint64      // in whole batches
	end     int         // behind the last whole batch
	index   int         // where its index begins, if the last batch has one; 0: it is not full
	torn    bool        // what is behind the end is not all zeros
}

// errNoBatch is why bytes are no batch.
var errNoBatch = errors.New("this is no batch")

// errLaterBatch is damage before the end.
var errLaterBatch = errors.New("a batch is whole that was written after one that is not")

// walkSegment reads the content of a segment as far as it is whole. It is an error if
// it can only be damaged; a segment that is torn may be, too, or its last batch was
// never finished.
func walkSegment(content []byte) (segmentContent, error) {
	var s segmentContent
	var offsets []uint32
	for s.index == 0 {
		b, err := readBatch(content, s.end, len(offsets))
		if err != nil {
			break
		}
		if s.end == 0 {
			s.name = readSegmentHead(content)
		}
		offsets = append(offsets, b.entries...)
		if b.index > 0 && !sameOffsets(content[b.index:], offsets) {
			return s, fmt.Errorf("its index at %d is not that of its %d entries", b.index, len(offsets))
		}
		s.end, s.index, s.entries = b.end, b.index, uint64(len(offsets))
	}
	s.torn = !allZeros(content[s.end:])
	if s.torn && s.index == 0 && laterBatch(content, s.end) {
		return s, fmt.Errorf("it cannot be read from byte %d on, in the batch behind entry %d of the segment, and %w", s.end, s.entries, errLaterBatch)
	}
	return s, nil
}

// batch is what was written and synced at once.
type batch struct {
	entries []uint32 // where their frames begin
	index   int      // where the content of its index begins; 0: it has none
	end     int      // behind its last frame
}

// readBatch reads the batch that begins at a place, with so many entries before it.
func readBatch(content []byte, at, before int) (batch, error) {
	var b batch
	next := at
	if at == 0 {
		if len(content) < segmentHead || binary.LittleEndian.Uint64(content) != segmentMagic {
			return b, errNoBatch
		}
		next = segmentHead
	}
	for {
		kind, value, ok := readFrameHead(content, next)
		switch {
		case !ok || b.index > 0 && kind != commitFrame:
			return b, errNoBatch
		case kind == entryFrame:
			b.entries = append(b.entries, uint32(next)) //nolint:gosec // a segment is below 4 GiB; see readSegment
		case kind == indexFrame:
			if int(value) != offsetSize*(before+len(b.entries)) || value == 0 {
				return b, errNoBatch
			}
			b.index = next + frameHead
		default:
			if len(b.entries) == 0 && b.index == 0 || crc32.Checksum(content[at:next], castagnoli) != value {
				return b, errNoBatch
			}
			b.end = next + frameHead
			return b, nil
		}
		next = behindFrame(next, kind, value)
	}
}

// readFrameHead reads the head of a frame, which must end within the content.
func readFrameHead(content []byte, at int) (kind byte, value uint32, ok bool) {
	if at < 0 || len(content)-at < frameHead {
		return 0, 0, false
	}
	head := content[at:]
	kind, value = head[0], binary.LittleEndian.Uint32(head[4:])
	if kind < entryFrame || kind > commitFrame || head[1] != 0 || head[2] != 0 || head[3] != 0 {
		return 0, 0, false
	}
	if kind != commitFrame && (value > maxFrame || behindFrame(at, kind, value) > len(content)) {
		return 0, 0, false
	}
	return kind, value, true
}

// behindFrame is where the next frame begins.
func behindFrame(at int, kind byte, value uint32) int {
	if kind == commitFrame {
		return at + frameHead
	}
	return at + frameHead + (int(value)+frameHead-1)/frameHead*frameHead
}

func readSegmentHead(content []byte) segmentName {
	return segmentName{
		base: binary.LittleEndian.Uint64(content[8:]), id: binary.LittleEndian.Uint64(content[16:]),
		codec: binary.LittleEndian.Uint64(content[24:]),
	}
}

func sameOffsets(index []byte, offsets []uint32) bool {
	for i, want := range offsets {
		if binary.LittleEndian.Uint32(index[i*offsetSize:]) != want {
			return false
		}
	}
	return true
}

// zeros is what allZeros compares with, a piece at a time: quicker by far than a loop.
var zeros [4096]byte

func allZeros(content []byte) bool {
	for len(content) > len(zeros) {
		if !bytes.Equal(content[:len(zeros)], zeros[:]) {
			return false
		}
		content = content[len(zeros):]
	}
	return bytes.Equal(content, zeros[:len(content)])
}

// sumsAllowed bounds the work of laterBatch: so many times may it take the checksum of
// all that it looks at. A batch has at most MaxBatch entries, and each of its frames
// may begin what could be a batch.
const sumsAllowed = 4 * MaxBatch

// laterBatch says whether there is a whole batch behind a place at which none can be
// read: then what is there was once whole, since a batch is written when the one before
// is synced. A batch is no part of another one: the checksum of the larger differs.
func laterBatch(content []byte, from int) bool {
	allowed := sumsAllowed * (len(content) - from)
	for at := (from + frameHead) / frameHead * frameHead; at+frameHead <= len(content); at += frameHead {
		if binary.NativeEndian.Uint64(content[at:]) == 0 {
			continue
		}
		kind, value, ok := readFrameHead(content, at)
		next := at
		for ok && kind != commitFrame {
			next = behindFrame(next, kind, value)
			allowed -= frameHead
			kind, value, ok = readFrameHead(content, next)
		}
		if !ok || next == at {
			continue
		}
		if allowed -= next - at; allowed < 0 {
			return true // made to look like very many: nothing that is torn is
		}
		if crc32.Checksum(content[at:next], castagnoli) == value {
			return true
		}
	}
	return false
}
