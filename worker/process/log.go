package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
)

// DefaultLogPart is the default size of a log's head and of its tail, in bytes.
const DefaultLogPart = 1 << 20

// LogLimits bounds a log: its first Head and its last Tail bytes are kept. Zero
// means [DefaultLogPart].
type LogLimits struct {
	Head, Tail int64
}

// ErrLogClosed is returned by Write on a closed log.
var ErrLogClosed = errors.New("process: log is closed")

// A Log stores the output of a program in a file, up to a limit: the head,
// where most programs describe what they do, and the tail, where they report
// what went wrong. Offsets count the bytes that the program wrote, whether they
// are kept or not.
//
// The file is created with the first byte, because many programs write
// nothing. It is the plain output while it fits into both parts. After that,
// the tail is a ring:
//
//	head bytes │ tail bytes, byte o at head + (o-head) mod tail
//
// Write may be called by several goroutines. Readers never delay it.
type Log struct {
	path   string
	limits LogLimits

	// writing orders the chunks, and guards file. It is held while the file is
	// written; only writers wait for it.
	writing sync.Mutex
	file    *os.File // nil before the first byte

	mu       sync.Mutex // guards the rest; never held over I/O
	size     int64      // bytes that can be read
	reserved int64      // size plus the bytes being written: those that they overwrite are lost already
	closed   bool
	changed  chan struct{} // closed and set to nil at the next change; nil if nothing waits
}

// NewLog returns an empty log. Its file is created, or truncated, by the first
// Write, and can be read by its owner only.
func NewLog(path string, limits LogLimits) *Log {
	limits = LogLimits{Head: cmp.Or(limits.Head, DefaultLogPart), Tail: cmp.Or(limits.Tail, DefaultLogPart)}
	return &Log{path: path, limits: limits}
}

// Write appends a chunk. After an error (such as a full disk) the log contains
// what was written, and the next Write continues there.
func (l *Log) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	start, err := l.reserve(int64(len(p)))
	if err != nil {
		return 0, err
	}
	if l.file == nil {
		l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			l.publish(start)
			return 0, fmt.Errorf("creating log: %w", err)
		}
	}
	n, err := l.store(p, start)
	l.publish(start + int64(n))
	if err != nil {
		return n, fmt.Errorf("writing log: %w", err)
	}
	return n, nil
}

// Close completes the log and wakes its readers. The caller must not write
// concurrently. Closing again has no effect.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.wakeLocked()
	l.mu.Unlock()
	if closed || l.file == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("closing log: %w", err)
	}
	return nil
}

// Remove removes the file of a closed log. Readers that have opened it keep
// their access. If it cannot be removed, it stays.
func (l *Log) Remove() {
	if l.Size() > 0 {
		_ = os.Remove(l.path)
	}
}

// Size returns how many bytes were written so far, kept or not.
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

// publish makes the written bytes readable.
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

// store writes p, which starts at offset start, to the file, and returns the
// bytes written.
func (l *Log) store(p []byte, start int64) (int, error) {
	done := 0
	for done < len(p) {
		offset := start + int64(done)
		part := p[done:]
		if offset >= l.limits.Head && int64(len(part)) > l.limits.Tail {
			done += len(part) - int(l.limits.Tail) // the rest would overwrite these bytes
			continue
		}
		at, contiguous := l.limits.position(offset)
		n, err := l.file.WriteAt(part[:min(int64(len(part)), contiguous)], at)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// position returns the position of an offset in the file, and how many bytes
// are contiguous from there.
func (m LogLimits) position(offset int64) (at, contiguous int64) {
	if offset < m.Head {
		return offset, m.Head - offset
	}
	in := (offset - m.Head) % m.Tail
	return m.Head + in, m.Tail - in
}
