package fsm

import "encoding/binary"

// noteSize is the length of a piece of a job's notes. Results go into pieces,
// never into one growing slice, so that nothing large is ever copied.
const noteSize = 64 << 10

// noteKind says what a note holds.
type noteKind byte

const (
	noteResult noteKind = iota + 1 // result and output of a completed task
	noteError                      // why the last attempt failed, or the task was cancelled
)

// notes are the texts and results that records of a job point to: appended,
// never changed, and given back with the job.
//
// A position is the piece's number << 16 | offset. A note is its kind (1 byte),
// length (varint), contents.
type notes struct {
	own    *ownership
	pieces [][]byte
}

// add appends a note and returns its position + 1.
func (n *notes) add(own *ownership, kind noteKind, parts ...[]byte) uint32 {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	need := 1 + binary.MaxVarintLen32 + size
	if n.own != own {
		// The last piece may still be written by the other side of a fork.
		n.pieces = append(make([][]byte, 0, len(n.pieces)+1), n.pieces...)
		n.own = own
		if last := len(n.pieces) - 1; last >= 0 {
			n.pieces[last] = n.pieces[last][:len(n.pieces[last]):len(n.pieces[last])]
		}
	}
	last := len(n.pieces) - 1
	if last < 0 || cap(n.pieces[last])-len(n.pieces[last]) < need {
		n.pieces = append(n.pieces, make([]byte, 0, n.pieceSize(need)))
		last++
	}
	p := n.pieces[last]
	at := uint32(last)<<16 | uint32(len(p)) //nolint:gosec // 65,535 pieces of 64 KiB are 4 GiB of results in one job
	p = append(p, byte(kind))
	p = binary.AppendUvarint(p, uint64(size)) //nolint:gosec // ≤ 5 KiB
	for _, part := range parts {
		p = append(p, part...)
	}
	n.pieces[last] = p
	return at + 1
}

// pieceSize starts small, as most jobs leave little, and doubles up to
// noteSize.
func (n *notes) pieceSize(need int) int {
	size := 256 << len(n.pieces)
	if size <= 0 || size > noteSize {
		size = noteSize
	}
	return max(size, need)
}

// get returns a note by its position + 1.
func (n *notes) get(note uint32) (noteKind, []byte) {
	if note == 0 {
		return 0, nil
	}
	at := note - 1
	p := n.pieces[at>>16][at&0xffff:]
	value, _ := lengthPrefixed(p[1:])
	return noteKind(p[0]), value
}
