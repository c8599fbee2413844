package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
)

// noteSize is the length of a chunk of a job's notes, in bytes. Results are
// appended to chunks, never to one growing slice, so that nothing large is
// copied.
const noteSize = 64 << 10

// noteKind is the kind of a note.
type noteKind byte

const (
	noteResult    noteKind = iota + 1 // result and output of a completed task
	noteError                         // why a task without a history ended, or the text of another note
	noteAttempt                       // a failed or lost attempt, and a link to the previous one
	noteEnd                           // why a task with a history was cancelled or failed, and a link to its last attempt
	noteReused                        // job and name of the task that produced it, then as a result
	noteRecovered                     // of a completed task with a history: a link to its last attempt, and to its result or a reused one
)

// notes are the texts and results that records of a job point to. They are
// appended, never changed, and freed with the job.
//
// A note is its kind (1 byte), length (varint), contents. All notes of a job
// are one stream, and a note's position is its offset in the stream.
// Invariant: positions follow from the log alone. The division into chunks
// does not: it differs between replicas, since a fork and a restored snapshot
// start new ones.
type notes struct {
	own    *ownership
	chunks []noteChunk
	size   uint32 // length of the stream
	last   uint32 // position + 1 of the last text
}

// noteChunk is a part of the stream with whole notes.
type noteChunk struct {
	at uint32 // its offset in the stream
	b  []byte
}

// add appends a note and returns its position + 1. If the job's notes have
// reached 4 GiB, it drops the note and returns 0.
func (n *notes) add(own *ownership, kind noteKind, parts ...[]byte) uint32 {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = byte(kind)
	w := 1 + binary.PutUvarint(head[1:], uint64(size)) //nolint:gosec // a length
	need := w + size
	if uint64(n.size)+uint64(need) >= math.MaxUint32 { //nolint:gosec // a length
		return 0
	}
	p := n.chunkFor(own, need)
	p.b = append(p.b, head[:w]...)
	for _, part := range parts {
		p.b = append(p.b, part...)
	}
	at := n.size + 1
	if kind == noteError {
		n.last = at
	}
	n.size += uint32(need) //nolint:gosec // checked above
	return at
}

// addText appends a text unless it equals the last one: if a thousand tasks
// end for one reason, it is stored once.
func (n *notes) addText(own *ownership, text string) uint32 {
	if k, old := n.get(n.last); k == noteError && bytes.Equal(old, []byte(text)) {
		return n.last
	}
	return n.add(own, noteError, []byte(text))
}

// chunkFor returns the last chunk, with capacity for need bytes.
func (n *notes) chunkFor(own *ownership, need int) *noteChunk {
	if n.own != own {
		n.chunks = append(make([]noteChunk, 0, len(n.chunks)+1), n.chunks...)
		n.own = own
		if last := len(n.chunks) - 1; last >= 0 {
			// The other side of a fork may still write to it.
			b := n.chunks[last].b
			n.chunks[last].b = append(make([]byte, 0, cap(b)), b...)
		}
	}
	last := len(n.chunks) - 1
	if last < 0 || cap(n.chunks[last].b)-len(n.chunks[last].b) < need {
		n.chunks = append(n.chunks, noteChunk{at: n.size, b: make([]byte, 0, n.chunkSize(need))})
		last++
	}
	return &n.chunks[last]
}

// chunkSize starts small, since most jobs have few notes, and doubles up to
// noteSize.
func (n *notes) chunkSize(need int) int {
	size := noteSize
	if k := len(n.chunks); k < 8 {
		size = 256 << k
	}
	return max(size, need)
}

// from returns the stream from a position + 1 to the end of its chunk; nil if
// the position is unknown.
func (n *notes) from(note uint32) []byte {
	if note == 0 || note > n.size {
		return nil
	}
	k := sort.Search(len(n.chunks), func(k int) bool { return n.chunks[k].at > note-1 }) - 1
	return n.chunks[k].b[note-1-n.chunks[k].at:]
}

// get returns a note by its position + 1.
func (n *notes) get(note uint32) (noteKind, []byte) {
	p := n.from(note)
	if p == nil {
		return 0, nil
	}
	value, _ := lengthPrefixed(p[1:])
	return noteKind(p[0]), value
}

// frames divides the stream into frames of whole notes, in the same way on
// every replica.
func (n *notes) frames(yield func([]byte) bool) {
	var frame []byte
	for _, p := range n.chunks {
		for rest := p.b; len(rest) > 0; {
			_, after := lengthPrefixed(rest[1:])
			note := rest[:len(rest)-len(after)]
			if len(frame) > 0 && len(frame)+len(note) > noteSize {
				if !yield(frame) {
					return
				}
				frame = frame[:0]
			}
			frame = append(frame, note...)
			rest = after
		}
	}
	if len(frame) > 0 {
		yield(frame)
	}
}

// restore appends a frame and checks everything that get relies on.
func (n *notes) restore(frame []byte) error {
	d := decoder{b: frame}
	for len(d.b) > 0 {
		at := len(frame) - len(d.b)
		if err := d.note(); err != nil {
			return err
		}
		if noteKind(frame[at]) == noteError {
			n.last = n.size + uint32(at) + 1 //nolint:gosec // a frame is far below 4 GiB
		}
	}
	if len(frame) == 0 || uint64(n.size)+uint64(len(frame)) >= math.MaxUint32 {
		return errors.New("empty or oversized frame of notes")
	}
	n.chunks = append(n.chunks, noteChunk{at: n.size, b: frame})
	n.size += uint32(len(frame)) //nolint:gosec // a frame is far below 4 GiB
	return nil
}

// note reads a note and checks everything that Result relies on.
func (d *decoder) note() error {
	kind := noteKind(d.byte())
	value := decoder{b: d.bytes()}
	if d.err != nil {
		return d.err
	}
	switch kind {
	case noteError:
	case noteAttempt:
		value.attempt()
	case noteEnd, noteRecovered:
		value.end()
	case noteResult, noteReused:
		if kind == noteReused {
			value.u64()
			value.bytes()
		}
		value.i64()
		if hash := int(value.byte()); hash > len(value.b) {
			value.fail(errTruncated)
		}
	default:
		return fmt.Errorf("unknown note kind %d", kind)
	}
	return value.err
}
