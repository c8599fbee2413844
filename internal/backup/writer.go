package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// Writer writes a backup: the state with Write, then the history with Job, then Close.
// Without Close the file is incomplete, which readers detect. It keeps the first error.
type Writer struct {
	to      io.Writer
	sum     hash.Hash
	history bool

	state  []byte // not in a frame yet
	frame  []byte // memory for frames
	frames uint64
	chunks uint64
	jobs   bool // Job was called: the state is complete
	err    error
}

// NewWriter starts a backup and writes its manifest.
func NewWriter(to io.Writer, m Manifest) (*Writer, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding manifest: %w", err)
	}
	w := &Writer{to: to, sum: sha256.New(), history: m.History}
	w.write([]byte(magic))
	w.put(frameManifest, text)
	return w, w.err
}

// write writes bytes that count for the SHA-256.
func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	w.sum.Write(b)
	if _, err := w.to.Write(b); err != nil {
		w.err = fmt.Errorf("writing backup: %w", err)
	}
}

// put writes a frame.
func (w *Writer) put(kind frameKind, contents []byte) {
	if len(contents) > maxFrame {
		w.err = errors.Join(w.err, fmt.Errorf("writing backup: a frame of %d bytes is longer than %d", len(contents), maxFrame))
		return
	}
	w.frame = appendFrame(w.frame[:0], kind, contents)
	w.write(w.frame)
	w.frames++
}

func appendFrame(b []byte, kind frameKind, contents []byte) []byte {
	at := len(b)
	b = append(b, byte(kind))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(contents))) //nolint:gosec // ≤ maxFrame
	b = append(b, contents...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// Write writes a part of the state. It implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	if w.jobs {
		w.err = errors.Join(w.err, errors.New("writing backup: the state follows the history"))
	}
	for rest := b; len(rest) > 0; {
		n := min(stateFrame-len(w.state), len(rest))
		w.state, rest = append(w.state, rest[:n]...), rest[n:]
		if len(w.state) == stateFrame {
			w.flush()
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(b), nil
}

func (w *Writer) flush() {
	if len(w.state) > 0 {
		w.put(frameState, w.state)
		w.state = w.state[:0]
	}
}

// Job writes a chunk of the history. The manifest must announce the history.
func (w *Writer) Job(c Chunk) error {
	w.flush()
	w.jobs = true
	if !w.history {
		w.err = errors.Join(w.err, errors.New("writing backup: the manifest announces no history"))
	}
	w.put(frameJob, c.append(nil))
	w.chunks++
	return w.err
}

// Close completes the backup. It does not close the stream.
func (w *Writer) Close() error {
	w.flush()
	end := binary.LittleEndian.AppendUint64(nil, w.frames)
	end = binary.LittleEndian.AppendUint64(end, w.chunks)
	w.put(frameEnd, w.sum.Sum(end))
	return w.err
}
