package logs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// Limits bound what a Store keeps. Zero values mean the defaults.
type Limits struct {
	Bytes    int64         // on disk, about; default 1 GiB
	Age      time.Duration // of output, or an eighth more; default 7 days
	Attempts int           // with output, about; default 1,000,000

	SegmentBytes int64 // size from which on another segment is begun; default 16 MiB, or an eighth of Bytes
	MaxShared    int   // bytes that an attempt has in segments; default 64 KiB
}

// Fill replaces zero values by the defaults.
func (l *Limits) Fill() {
	l.Bytes = cmp.Or(l.Bytes, 1<<30)
	l.Age = cmp.Or(l.Age, 7*24*time.Hour)
	l.Attempts = cmp.Or(l.Attempts, 1_000_000)
	// A limit is exceeded by about a segment: see full.
	l.SegmentBytes = cmp.Or(l.SegmentBytes, min(16<<20, max(l.Bytes/8, 4<<10)))
	l.MaxShared = cmp.Or(l.MaxShared, 64<<10)
}

// ErrNone is returned for an attempt of which nothing is kept: it had no writer, or what
// it wrote was removed. An attempt whose writer wrote nothing has an empty output.
var ErrNone = errors.New("no output of this attempt is kept")

// A GoneError is returned for an attempt whose output is known only by its length.
type GoneError struct{ Bytes uint64 }

// Error implements error.
func (e *GoneError) Error() string { return fmt.Sprintf("%d bytes of output are not kept", e.Bytes) }

// A Store keeps the output of attempts in a directory that no other process uses.
type Store struct {
	dir    string
	limits Limits
	now    func() time.Time

	mu       sync.Mutex // guards the rest, and orders the records; held while a record is written
	segments []*segment // ascending; the last one is active if its file is open
	next     uint64     // number of the next segment: a number is used once by a process
	long     []*longOutput
	writers  map[Attempt]*Writer
	encoded  []byte // the last record; its memory is used again
	closed   bool
	dropped  uint64 // bytes of output that could not be written
}

// A longOutput is an overflow that is complete.
type longOutput struct {
	of       Attempt
	last     int // number of its last part
	bytes    int64
	newestMS int64
}

// Open opens the store in a directory, and creates it if it is missing.
func Open(dir string, limits Limits) (*Store, error) {
	limits.Fill()
	s := &Store{dir: dir, limits: limits, now: time.Now, next: 1, writers: make(map[Attempt]*Writer)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of logs: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of logs: %w", err)
	}
	long := make(map[Attempt]*longOutput)
	for _, e := range entries {
		if no, ok := segmentNumber(e.Name()); ok {
			seg, err := openSegment(dir, no)
			if err != nil {
				return nil, err
			}
			s.segments = append(s.segments, seg)
			s.next = no + 1 // they are in order
		}
		if a, part, ok := attemptOfPart(e.Name()); ok {
			if info, err := e.Info(); err == nil {
				addPart(long, a, part, info)
			}
		}
	}
	for _, l := range long {
		s.long = append(s.long, l)
	}
	slices.SortFunc(s.long, func(a, b *longOutput) int { return cmp.Compare(a.newestMS, b.newestMS) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s, nil
}

// addPart adds a file that was found to the long output of its attempt.
func addPart(long map[Attempt]*longOutput, a Attempt, part int, info os.FileInfo) {
	l := long[a]
	if l == nil {
		l = &longOutput{of: a}
		long[a] = l
	}
	l.last = max(l.last, part)
	l.bytes += info.Size()
	l.newestMS = max(l.newestMS, info.ModTime().UnixMilli())
}

// Close closes the store. Writers that are still open write nothing more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, w := range s.writers {
		errs = append(errs, w.close())
	}
	if active := s.active(); active != nil {
		errs = append(errs, active.seal())
	}
	s.closed = true
	return errors.Join(errs...)
}

// active returns the segment that is written to; nil if no segment is.
func (s *Store) active() *segment {
	if n := len(s.segments); n > 0 && s.segments[n-1].file != nil {
		return s.segments[n-1]
	}
	return nil
}

// writable returns the active segment, a new one if the last one is full.
func (s *Store) writable() (*segment, error) {
	active := s.active()
	if active != nil && !s.full(active) {
		return active, nil
	}
	if active != nil {
		_ = active.seal() // what it has is still found, here and when the store is opened
	}
	created, err := createSegment(s.dir, s.next)
	s.next++ // also if the file is there: then it is not of this store
	if err != nil {
		return nil, err
	}
	s.segments = append(s.segments, created)
	s.expire()
	return created, nil
}

// full reports whether another segment must be begun. Retention removes whole segments,
// so that one must not have much more than an eighth of what is kept.
func (s *Store) full(seg *segment) bool {
	return seg.size >= s.limits.SegmentBytes || seg.attempts >= max(1, s.limits.Attempts/8) ||
		seg.attempts > 0 && s.now().UnixMilli()-seg.oldestMS > s.limits.Age.Milliseconds()/8
}

// Expire removes what is beyond the limits. Writing does so too, but a store that nobody
// writes to also ages.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if active := s.active(); active != nil && s.full(active) {
		_ = active.seal() // as in writable
	}
	s.expire()
}

// Oldest returns the time of the oldest output in the segments; the zero time if they are empty.
func (s *Store) Oldest() time.Time {
	s.mu.Lock()
	path := ""
	if len(s.segments) > 0 {
		path = s.segments[0].path
	}
	s.mu.Unlock()
	file, err := os.Open(path) //nolint:gosec // below the work directory
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = file.Close() }() // read only
	r, err := readRecord(file, 0)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(r.timeMS)
}

// expire removes the oldest segments and long outputs beyond the limits. The active
// segment and what is being written stay.
func (s *Store) expire() {
	bytes, attempts := s.bytes(), 0
	for _, seg := range s.segments {
		attempts += seg.attempts
	}
	oldest := s.now().Add(-s.limits.Age).UnixMilli()
	due := func(newestMS int64) bool { return bytes > s.limits.Bytes || newestMS < oldest }
	for {
		var seg *segment
		if len(s.segments) > 0 && s.segments[0].file == nil {
			seg = s.segments[0]
		}
		var long *longOutput
		if len(s.long) > 0 {
			long = s.long[0]
		}
		switch {
		case seg != nil && (attempts > s.limits.Attempts || due(seg.newestMS) && (long == nil || seg.newestMS <= long.newestMS)):
			bytes -= seg.cost()
			attempts -= seg.attempts
			_, _ = os.Remove(seg.path), os.Remove(seg.indexPath()) // found again when the store is opened
			s.segments = s.segments[1:]
		case long != nil && due(long.newestMS):
			bytes -= long.bytes
			removeParts(overflowPrefix(s.dir, long.of), long.last)
			s.long = s.long[1:]
		default:
			return
		}
	}
}
