package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// DefaultLogPart is how many bytes of a log's head, and of its tail, are kept
// when [LogLimits] does not say.
const DefaultLogPart = 1 << 20

// LogLimits bound a log: its first Head and its last Tail bytes are kept. Zero is
// [DefaultLogPart].
type LogLimits struct {
	Head, Tail int64
}

// ErrLogClosed is returned by Write on a log that was closed.
var ErrLogClosed = errors.New("the log is closed")

var errLogLimits = errors.New("log limits are negative")

// A Log keeps the output of a program in a file, up to a limit: the beginning,
// where most programs say what they do, and the end, where they say what went
// wrong. Offsets count the bytes that the program wrote, so they mean the same
// whether or not something was left out.
//
// The file is the plain output as long as it fits into both parts. From then on
// its second part is a ring, and after it stands one line that says so:
//
//	head bytes │ tail bytes, byte o at head + (o-head) mod tail │ trailer
//
// So a log is readable also after a crash of the worker, by [OpenLog].
//
// Write may be called by several goroutines; readers never hold it up.
type Log struct {
	path   string
	limits LogLimits
	file   *os.File

	// writing orders the chunks, so it is held over the write to the file;
	// nobody but a writer waits for it.
	writing sync.Mutex

	mu       sync.Mutex // guards what follows; never held over I/O
	size     int64      // bytes that can be read
	reserved int64      // bytes that are being written too: what they overwrite is lost already
	closed   bool
	changed  chan struct{} // closed and dropped at the next change; nil if nobody waits
}

// CreateLog makes the file, or empties it, readable by its owner only.
func CreateLog(path string, limits LogLimits) (*Log, error) {
	if limits.Head < 0 || limits.Tail < 0 {
		return nil, fmt.Errorf("creating the log %s: %w", path, errLogLimits)
	}
	if limits.Head == 0 {
		limits.Head = DefaultLogPart
	}
	if limits.Tail == 0 {
		limits.Tail = DefaultLogPart
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the caller's own path
	if err != nil {
		return nil, fmt.Errorf("creating the log: %w", err)
	}
	return &Log{path: path, limits: limits, file: file}, nil
}

// Write appends a chunk. After an error (a full disk) the log holds what was
// written, and the next Write goes on from there.
func (l *Log) Write(p []byte) (int, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	start, err := l.reserve(int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := l.store(p, start)
	l.publish(start + int64(n))
	if err != nil {
		return n, fmt.Errorf("writing the log: %w", err)
	}
	return n, nil
}

// Close ends the log and wakes who waits for more of it. The caller must not
// write meanwhile. Closing twice is fine.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	again := l.closed
	l.closed = true
	l.wakeLocked()
	l.mu.Unlock()
	if again {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("closing the log: %w", err)
	}
	return nil
}

// Size is how many bytes were written so far, kept or not.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// reserve announces n bytes before they overwrite older ones.
func (l *Log) reserve(n int64) (start int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrLogClosed
	}
	l.reserved = l.size + n
	return l.size, nil
}

// publish makes what was written readable.
func (l *Log) publish(size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size, l.reserved = size, size
	l.wakeLocked()
}

func (l *Log) wakeLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// store puts p at offset start into the file and returns how far it came.
func (l *Log) store(p []byte, start int64) (int, error) {
	done := 0
	for done < len(p) {
		at := start + int64(done)
		part := p[done:]
		if at >= l.limits.Head && int64(len(part)) > l.limits.Tail {
			done += len(part) - int(l.limits.Tail) // the ring would overwrite it at once
			continue
		}
		place, room := l.limits.place(at)
		n, err := l.file.WriteAt(part[:min(int64(len(part)), room)], place)
		done += n
		if err != nil {
			return done, err
		}
	}
	if end := start + int64(done); l.limits.wraps(end) {
		if _, err := l.file.WriteAt(l.limits.trailer(end), l.limits.Head+l.limits.Tail); err != nil {
			return done, err
		}
	}
	return done, nil
}

// place is where in the file offset o is, and how many bytes can follow it there.
func (m LogLimits) place(o int64) (at, room int64) {
	if o < m.Head {
		return o, m.Head - o
	}
	in := (o - m.Head) % m.Tail
	return m.Head + in, m.Tail - in
}

// wraps reports whether a log of size bytes has left something out.
func (m LogLimits) wraps(size int64) bool { return size > m.Head+m.Tail }

// trailerFormat has a fixed length, so that a later trailer covers an earlier one.
const (
	trailerFormat = "\ndtask-log head=%019d tail=%019d size=%019d\n"
	trailerLength = 1 + len("dtask-log head= tail= size=") + 3*19 + 1
)

func (m LogLimits) trailer(size int64) []byte {
	return fmt.Appendf(nil, trailerFormat, m.Head, m.Tail, size)
}
