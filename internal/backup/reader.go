package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// readBuffer is for the heads of frames.
const readBuffer = 64 << 10

// Reader reads a backup from its beginning to its end. What it has returned is only known
// to be what was written when Finish has succeeded.
type Reader struct {
	from     *bufio.Reader
	sum      hash.Hash // nil: see NewStateReader; during Finish, ahead has it
	ahead    *ahead    // nil: frames are hashed as they are read
	manifest Manifest

	state    []byte // of the current frame, not read yet
	stateEnd bool   // the last frame that was read is not one of the state
	kind     frameKind
	contents []byte          // of that frame
	head     [frameHead]byte // memory for that of the current frame
	frame    []byte          // memory for frames
	frames   uint64          // read before it
	read     uint64          // bytes
	totals   Totals
	err      error
}

// NewReader reads the manifest of a backup.
func NewReader(from io.Reader) (*Reader, error) { return newReader(from, sha256.New()) }

// NewStateReader is NewReader for a reader of the state alone, while another one reads the
// whole backup and checks its SHA-256: Finish fails.
func NewStateReader(from io.Reader) (*Reader, error) { return newReader(from, nil) }

func newReader(from io.Reader, sum hash.Hash) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, readBuffer), sum: sum}
	start := make([]byte, len(magic))
	if err := r.full(start); err != nil && !errors.Is(err, ErrTruncated) {
		return nil, err
	}
	if string(start) != magic {
		return nil, fmt.Errorf("%w: it starts with %q, want %q", ErrNotBackup, start, magic)
	}
	r.count(start)
	if err := r.next(); err != nil {
		return nil, err
	}
	if r.kind != frameManifest {
		return nil, damaged("the first frame has kind %d, want the manifest", r.kind)
	}
	if err := json.Unmarshal(r.contents, &r.manifest); err != nil {
		return nil, damaged("invalid manifest: %v", err)
	}
	return r, nil
}

// Manifest returns the manifest.
func (r *Reader) Manifest() Manifest { return r.manifest }

// full reads len(b) bytes.
func (r *Reader) full(b []byte) error {
	n, err := io.ReadFull(r.from, b)
	r.read += uint64(n) //nolint:gosec // not negative
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it ends after %d bytes, before its end frame: save it again, or use another one", ErrTruncated, r.read)
	case err != nil:
		return fmt.Errorf("reading backup: %w", err)
	}
	return nil
}

// next reads the next frame and checks it. All but the end frame count for the SHA-256.
func (r *Reader) next() error {
	head := r.head[:]
	if err := r.full(head); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return damaged("frame %d has %d bytes, at most %d are possible", r.frames, n, maxFrame)
	}
	if size := int(n) + frameTail; cap(r.frame) < size {
		r.frame = make([]byte, size)
	}
	b := r.frame[:int(n)+frameTail]
	if err := r.full(b); err != nil {
		return err
	}
	body, tail := b[:n], b[n:]
	sum := crc32.Update(crc32.Update(0, castagnoli, head), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(tail) {
		return damaged("the checksum of frame %d does not match", r.frames)
	}
	r.kind, r.contents = frameKind(head[0]), body
	if r.kind != frameEnd {
		r.count(head)
		r.count(b)
		r.frames++
	}
	return nil
}

// count adds bytes to the SHA-256.
func (r *Reader) count(b []byte) {
	if r.sum != nil {
		r.sum.Write(b)
	}
}

// State returns the bytes of the state. They end with io.EOF, and must be read before
// Finish is called, or not at all.
func (r *Reader) State() io.Reader { return stateReader{r} }

type stateReader struct{ *Reader }

// Read implements io.Reader.
func (r stateReader) Read(b []byte) (int, error) {
	for len(r.state) == 0 {
		if !r.nextState() {
			return 0, orEOF(r.err)
		}
	}
	n := copy(b, r.state)
	r.state = r.state[n:]
	return n, nil
}

func orEOF(err error) error {
	if err != nil {
		return err
	}
	return io.EOF
}

// nextState reads the next frame, and reports whether it is one of the state.
func (r *Reader) nextState() bool {
	if r.stateEnd || r.err != nil {
		return false
	}
	if r.err = r.next(); r.err != nil {
		return false
	}
	if r.kind != frameState {
		r.stateEnd = true
		return false
	}
	r.state = r.contents
	r.totals.StateBytes += uint64(len(r.state))
	return true
}

// Finish reads the rest of the file, calls take with each chunk of the history, and checks
// that the backup is complete and unchanged. A chunk's data are valid until take returns. take
// may be nil.
func (r *Reader) Finish(take func(Chunk) error) (Totals, error) {
	if r.sum == nil {
		return Totals{}, errors.New("reading backup: a reader of the state can't check the whole backup")
	}
	if !r.stateEnd || r.kind != frameEnd { // otherwise the file was read
		r.ahead = readAhead(r.from, r.sum)
		defer r.ahead.stop()
		r.from, r.sum = bufio.NewReaderSize(r.ahead, readBuffer), nil
	}
	for r.nextState() {
		r.state = nil // what was not read is skipped
	}
	if r.err != nil {
		return Totals{}, r.err
	}
	chunks := uint64(0)
	for ; r.kind == frameJob; chunks++ {
		if err := r.chunk(take); err != nil {
			return Totals{}, err
		}
		if err := r.next(); err != nil {
			return Totals{}, err
		}
	}
	return r.totals, r.end(chunks)
}

// chunk handles the current frame, which is one of the history.
func (r *Reader) chunk(take func(Chunk) error) error {
	if !r.manifest.History {
		return damaged("frame %d is of the history, which the manifest does not announce", r.frames-1)
	}
	c, err := parseChunk(r.contents)
	if err != nil {
		return err
	}
	if c.Number == 0 {
		r.totals.Jobs++
	}
	if take == nil {
		return nil
	}
	return take(c)
}

// end checks the current frame, which must be the last one.
func (r *Reader) end(chunks uint64) error {
	b := r.contents
	switch {
	case r.kind != frameEnd:
		return damaged("frame %d has kind %d, which is unknown or out of place", r.frames-1, r.kind)
	case len(b) != endLen:
		return damaged("the end frame has %d bytes, want %d", len(b), endLen)
	case binary.LittleEndian.Uint64(b) != r.frames || binary.LittleEndian.Uint64(b[8:]) != chunks:
		return damaged("it has %d frames and %d chunks of the history, want %d and %d",
			r.frames, chunks, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
	}
	r.totals.Bytes = r.read
	_, err := r.from.ReadByte()
	switch {
	case err == nil:
		return damaged("data follow its end at byte %d", r.read)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("reading backup: %w", err)
	}
	if r.sumUp(); !bytes.Equal(r.totals.SHA256[:], b[16:]) {
		return damaged("its SHA-256 does not match")
	}
	return nil
}

// sumUp computes the checksums of a file that was read to its end.
func (r *Reader) sumUp() {
	if r.ahead != nil {
		r.totals.SHA256, r.totals.Whole = r.ahead.sums()
		return
	}
	r.sum.Sum(r.totals.SHA256[:0])
	r.count(r.head[:])
	r.count(r.frame[:endLen+frameTail])
	r.sum.Sum(r.totals.Whole[:0])
}
