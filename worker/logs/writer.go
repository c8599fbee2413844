package logs

import (
	"errors"
)

// ErrClosed is returned by Write after Close.
var ErrClosed = errors.New("log is closed")

// A Writer stores the output of one attempt. Its methods are safe for concurrent use: the
// two streams of an attempt are written by different goroutines, and are kept in the
// order of the calls.
type Writer struct {
	store *Store
	of    Attempt

	// guarded by the store's mutex
	last     position
	written  uint64 // bytes of output, also those that could not be stored
	lost     bool   // some could not
	shared   int    // bytes in segments
	overflow *overflow
	newestMS int64
	closed   bool
	changed  chan struct{} // closed and set to nil at the next change; nil if nobody waits
}

// Writer returns the writer of an attempt that begins. Close it.
func (s *Store) Writer(a Attempt) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Writer{store: s, of: a}
	s.writers[a] = w
	return w
}

// Write appends output of a stream. After an error, such as of a full disk, what was
// written before it is kept, and the next Write may succeed: the rest of this one is
// omitted.
func (w *Writer) Write(stream Stream, data []byte) error {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.closed || w.store.closed {
		return ErrClosed
	}
	defer w.wake()
	for len(data) > 0 {
		n := min(len(data), maxData)
		if err := w.append(w.record(stream, data[:n])); err != nil {
			w.lost = true
			w.written += uint64(len(data))
			w.store.dropped += uint64(len(data))
			return err
		}
		w.written += uint64(n) //nolint:gosec // positive
		data = data[n:]
	}
	return nil
}

// record returns a record of the output that follows.
func (w *Writer) record(stream Stream, data []byte) *record {
	return &record{of: w.of, stream: stream, timeMS: w.store.now().UnixMilli(), offset: w.written, data: data}
}

func (w *Writer) append(r *record) error {
	w.newestMS = r.timeMS
	if w.overflow != nil || w.shared+recordHead+len(r.data) > w.store.limits.MaxShared {
		if w.overflow == nil {
			w.overflow = &overflow{prefix: overflowPrefix(w.store.dir, w.of)}
		}
		return w.overflow.append(w.store.encode(r))
	}
	return w.share(r)
}

// share appends a record to the segments.
func (w *Writer) share(r *record) error {
	seg, err := w.store.writable()
	if err != nil {
		return err
	}
	r.before = w.last
	at, err := seg.append(r, w.store.encode(r))
	if err != nil {
		return err
	}
	w.last, w.shared = at, w.shared+recordHead+len(r.data)
	return nil
}

// encode returns the encoded record until the next call.
func (s *Store) encode(r *record) []byte {
	s.encoded = appendRecord(s.encoded[:0], r)
	return s.encoded
}

func (w *Writer) wake() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// Close completes the output. Closing again has no effect.
func (w *Writer) Close() error {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return w.close()
}

func (w *Writer) close() error {
	if w.closed {
		return nil
	}
	if w.store.closed {
		w.closed = true
		return ErrClosed
	}
	var err error
	if w.overflow != nil || w.lost || w.written == 0 {
		// An empty record has the length of the output: readers notice if its end is
		// missing, and know no output from output that was removed.
		err = w.share(w.record(Stdout, nil))
	}
	w.closed = true
	w.wake()
	delete(w.store.writers, w.of)
	if w.overflow == nil {
		return err
	}
	err = errors.Join(err, w.overflow.close())
	w.store.long = append(w.store.long, &longOutput{of: w.of, last: w.overflow.part, bytes: w.overflow.total, newestMS: w.newestMS})
	w.store.expire()
	return err
}
