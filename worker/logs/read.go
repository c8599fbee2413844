package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
)

// A Piece is a part of an attempt's output.
type Piece struct {
	Stream Stream
	TimeMS int64  // when it was written, by the worker's clock
	Offset uint64 // bytes of output before it, kept or not
	Data   []byte // the caller may keep it; empty in a last piece, whose offset is the length
}

// Read passes the output of an attempt to f, in the order in which it was written: what
// there is now or, with follow, until the attempt's writer is closed. Between two pieces,
// output is missing that was not kept if their offsets differ by more than the first has.
// With follow, idle is called before Read waits for more. It returns ErrNone if nothing
// is kept and no writer was opened, a *GoneError if only the length is, and the error of f,
// idle or ctx.
func (s *Store) Read(ctx context.Context, a Attempt, follow bool, f func(Piece) error, idle func() error) error {
	r := &reader{store: s, of: a, pass: f, files: make(map[uint64]*os.File)}
	defer r.close()
	for {
		now, sealed := s.snapshot(a)
		if now.closed {
			if err := now.find(a, sealed); err != nil {
				return err
			}
		}
		if err := r.readTo(ctx, now); err != nil {
			return err
		}
		if now.closed || !follow {
			return nil
		}
		if err := idle(); err != nil {
			return err
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *record) piece() Piece {
	return Piece{Stream: r.stream, TimeMS: r.timeMS, Offset: r.offset, Data: r.data}
}

// A snapshot is how much an attempt has written.
type snapshot struct {
	last    position // of its last record in segments
	part    int      // last part of its overflow; -1 = it has none
	size    int64    // bytes of that part; -1 = the whole file
	closed  bool
	changed <-chan struct{}
}

// snapshot returns how much an attempt has written and, if its writer is closed, the
// sealed segments that may have its last record.
func (s *Store) snapshot(a Attempt) (snapshot, []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.writers[a]; w != nil {
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		now := snapshot{last: w.last, part: -1, changed: w.changed}
		if w.overflow != nil {
			now.part, now.size = w.overflow.part, w.overflow.size
		}
		return now, nil
	}
	now := snapshot{part: -1, size: -1, closed: true}
	for _, l := range s.long {
		if l.of == a {
			now.part = l.last
		}
	}
	// Files are read without the mutex, which output waits for.
	sealed := make([]*segment, 0, len(s.segments))
	for _, seg := range slices.Backward(s.segments) {
		if seg.last == nil {
			sealed = append(sealed, seg)
		} else if offset, found := seg.last[a]; found {
			now.last = position{seg.no, offset}
			break
		}
	}
	return now, sealed
}

// find completes the snapshot of an attempt whose writer is closed by its last record in
// the sealed segments after the one that it has, the newest first.
func (now *snapshot) find(a Attempt, sealed []*segment) error {
	for _, seg := range sealed {
		offset, found, err := findInIndex(seg.indexPath(), seg.attempts, a)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return err
		}
		if found {
			now.last = position{seg.no, offset}
			return nil
		}
	}
	if now.last.segment == 0 && now.part < 0 {
		return ErrNone
	}
	return nil
}

// A reader passes on the records of one attempt. It remembers what it has passed.
type reader struct {
	store *Store
	of    Attempt
	pass  func(Piece) error
	files map[uint64]*os.File // of segments, by number

	passed position // last record of the segments
	part   int      // of the overflow
	offset int64    // in the part
	end    *Piece   // an empty one that has the length of the output
	any    bool     // output was passed
}

func (r *reader) give(p Piece) error {
	r.any = true
	return r.pass(p)
}

func (r *reader) close() { r.closeBefore(math.MaxUint64) }

// closeBefore closes the segments before the one of a number: a follower must not keep
// the space of removed segments.
func (r *reader) closeBefore(no uint64) {
	for n, file := range r.files {
		if n < no {
			_ = file.Close() // read only
			delete(r.files, n)
		}
	}
}

// readTo passes what was written since the last call.
func (r *reader) readTo(ctx context.Context, now snapshot) error {
	chain, err := r.chain(now.last)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(chain) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec, err := readRecord(r.files[at.segment], int64(at.offset))
		if err != nil {
			return err
		}
		r.passed = at
		piece := rec.piece()
		if len(piece.Data) == 0 {
			r.end = &piece
			continue
		}
		if err := r.give(piece); err != nil {
			return err
		}
	}
	r.closeBefore(now.last.segment)
	for now.part >= 0 && r.part <= now.part {
		limit := int64(-1)
		if r.part == now.part {
			limit = now.size
		}
		if err := r.readPart(ctx, limit); err != nil {
			return err
		}
		if r.part == now.part && !now.closed {
			return nil // it grows
		}
		r.part, r.offset = r.part+1, 0
	}
	switch {
	case r.end == nil || !now.closed || r.end.Offset == 0:
		return nil
	case !r.any:
		return &GoneError{Bytes: r.end.Offset}
	}
	return r.pass(*r.end)
}

// chain returns the positions of the records after those that were passed, the newest
// first. It ends where a segment was removed or, after a power failure, is damaged.
func (r *reader) chain(last position) ([]position, error) {
	var list []position
	for at := last; at != r.passed && at.segment != 0; {
		file, err := r.segment(at.segment)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("opening logs: %w", err)
		}
		rec, err := readRecord(file, int64(at.offset))
		if err == nil && (rec.of != r.of || !rec.before.isBefore(at)) {
			err = errDamaged
		}
		if errors.Is(err, errDamaged) && len(list) > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		list = append(list, at)
		at = rec.before
	}
	return list, nil
}

func (r *reader) segment(no uint64) (*os.File, error) {
	if file := r.files[no]; file != nil {
		return file, nil
	}
	file, err := os.Open(segmentPath(r.store.dir, no))
	if err == nil {
		r.files[no] = file
	}
	return file, err //nolint:wrapcheck // the caller adds the context
}

// readPart passes the rest of a part of the overflow, up to a size; -1 is the whole file.
// A part that was removed meanwhile is omitted.
func (r *reader) readPart(ctx context.Context, size int64) error {
	file, err := os.Open(partPath(overflowPrefix(r.store.dir, r.of), r.part))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening logs: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	for size < 0 || r.offset < size {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec, err := readRecord(file, r.offset)
		if errors.Is(err, errDamaged) {
			return nil // the end, or a crash
		}
		if err != nil {
			return err
		}
		if err := r.give(rec.piece()); err != nil {
			return err
		}
		r.offset += recordHead + int64(len(rec.data))
	}
	return nil
}
