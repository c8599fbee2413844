package history

import (
	"crypto/sha256"
	"hash"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/fsm"
)

// measuredHash is a SHA-256 that counts bytes.
type measuredHash struct {
	hash.Hash

	size uint64
}

func newMeasuredHash() *measuredHash { return &measuredHash{Hash: sha256.New()} }

// Write implements io.Writer.
func (h *measuredHash) Write(b []byte) (int, error) {
	h.size += uint64(len(b))
	return h.Hash.Write(b) //nolint:wrapcheck // never fails
}

func (h *measuredHash) sum() (s templateSum) {
	h.Sum(s[:0])
	return s
}

// shared is the record of a run, which refers to its template.
type shared struct {
	ref       templateRef
	size      uint64 // of the template
	head      fsm.Head
	data      []byte // the head, encoded
	parts     uint32
	partBytes int
}

func (s *shared) encoded(p Position, memory *arena) encoded {
	e := newEncoded(p, &storedRecord{parts: s.parts, template: &s.ref, data: s.data}, &s.head, s.partBytes, memory)
	e.template, e.templateSize = &s.ref, s.size
	return e
}

// encodeRun encodes a run of a schedule. If its template is too short for a copy of its
// own, ok is false. The parts of a template that the file does not have are added to rest.
func (e *encoder) encodeRun(q queued, memory *arena, rest *parts, f *file) (_ encoded, ok bool, err error) {
	h := newMeasuredHash()
	if err := e.records.WriteTemplate(q.job, h); err != nil || h.size < fsm.MinTemplate {
		return encoded{}, false, err
	}
	s, id := shared{ref: templateRef{sum: h.sum()}, size: h.size}, q.job.ID()
	if s.ref.parts, err = e.storeTemplate(q.job, &s, rest, f); err != nil {
		return encoded{}, false, err
	}
	own := cutter{rest: e.rest[:0], put: func(part uint32, b []byte) error {
		s.partBytes += len(b)
		rest.add(id, part, b)
		return rest.flush(f)
	}}
	begin := apartHead{cutter: &own}
	s.head, err = e.records.WriteApart(q.job, &begin, func() (err error) {
		s.data, err = begin.end()
		s.ref.before = own.n
		return err
	})
	if err == nil {
		err = own.finish()
	}
	e.rest, s.parts = own.rest, own.n
	if err != nil {
		return encoded{}, false, err
	}
	return s.encoded(Position{q.index, id}, memory), true, nil
}

// storeTemplate returns the number of parts of a template, and adds them to rest if the
// file does not have them.
func (e *encoder) storeTemplate(a *fsm.ArchivedJob, s *shared, rest *parts, f *file) (n uint32, err error) {
	sum := s.ref.sum
	stored := e.staged[sum]
	if !stored {
		err = f.view(func(tx *bbolt.Tx) error {
			stored = hasTemplate(tx, &sum)
			return nil
		})
	}
	if stored || err != nil {
		return partsOf(s.size), err
	}
	out := cutter{put: func(part uint32, b []byte) error {
		rest.addTemplate(&sum, part, b)
		return rest.flush(f)
	}}
	if err = e.records.WriteTemplate(a, &out); err == nil {
		err = out.finish()
	}
	if err == nil {
		if e.staged == nil {
			e.staged = make(map[templateSum]bool)
		}
		e.staged[sum] = true
	}
	return out.n, err
}

// partsOf is the number of parts of some bytes.
func partsOf(size uint64) uint32 { return uint32((size + partSize - 1) / partSize) } //nolint:gosec // a template is far below 2^32 parts

// apartHead takes what precedes a template: the head and the summary. What follows goes to
// the cutter.
type apartHead struct {
	*cutter

	b    []byte
	done bool
}

// Write implements io.Writer.
func (h *apartHead) Write(b []byte) (int, error) {
	if h.done {
		return h.cutter.Write(b)
	}
	h.b = append(h.b, b...)
	return len(b), nil
}

// end returns the head, and makes the rest a part of its own.
func (h *apartHead) end() (head []byte, err error) {
	h.done = true
	_, size, err := fsm.ReadHead(h.b)
	if err != nil {
		return nil, err
	}
	if _, err := h.cutter.Write(h.b[size:]); err != nil {
		return nil, err
	}
	return h.b[:size], h.finish()
}
