package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A Chunk is a part of a log.
type Chunk struct {
	Offset int64 // of the first byte of Data, in the program's output
	// Skipped is the number of requested bytes before Offset that are not kept.
	Skipped int64
	Data    []byte
}

// Gap returns a line that replaces the skipped bytes, or an empty string.
func (c Chunk) Gap() string {
	if c.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf("\n[dtask: %d bytes omitted]\n", c.Skipped)
}

// A LogReader reads a log by offset, while it is being written or afterwards.
// It has its own handle of the file, and works after the log is closed or,
// unless the log was empty when the reader was opened, the file is removed. Its
// methods may be called by several goroutines.
type LogReader struct {
	log *Log

	mu   sync.Mutex // guards file
	file *os.File   // nil while the log is empty
}

// NewReader opens a reader. The caller must Close it.
func (l *Log) NewReader() (*LogReader, error) {
	r := &LogReader{log: l}
	if l.Size() > 0 {
		if _, err := r.open(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// open returns the log's file, which exists because the log is not empty.
func (r *LogReader) open() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		file, err := os.Open(r.log.path)
		if err != nil {
			return nil, fmt.Errorf("opening log: %w", err)
		}
		r.file = file
	}
	return r.file, nil
}

// Close releases the file.
func (r *LogReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Changed returns a channel that is closed when the log grows or ends after
// this call; nil if the log has ended. To miss nothing, call Changed, then Read
// to io.EOF, then wait.
func (r *LogReader) Changed() <-chan struct{} {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.closed {
		return nil
	}
	if r.log.changed == nil {
		r.log.changed = make(chan struct{})
	}
	return r.log.changed
}

// Size returns how many bytes the program has written so far, kept or not.
func (r *LogReader) Size() int64 { return r.log.Size() }

// Read reads the first kept bytes at or after offset into buf. It returns
// io.EOF at the current end of the log, and an error for a negative offset.
func (r *LogReader) Read(offset int64, buf []byte) (Chunk, error) {
	if offset < 0 {
		return Chunk{}, fmt.Errorf("reading log: %w", os.ErrInvalid)
	}
	for {
		size, oldest := r.bounds(offset)
		start := max(offset, oldest)
		if start >= size {
			return Chunk{Offset: offset}, io.EOF
		}
		at, contiguous := r.log.limits.position(start)
		n := min(int64(len(buf)), contiguous, size-start)
		file, err := r.open()
		if err != nil {
			return Chunk{}, err
		}
		got, err := file.ReadAt(buf[:n], at)
		if errors.Is(err, io.EOF) && int64(got) == n {
			err = nil
		}
		if err != nil {
			return Chunk{}, fmt.Errorf("reading log: %w", err)
		}
		// Read again if a writer has overwritten the bytes meanwhile.
		if _, oldest := r.bounds(start); oldest <= start {
			return Chunk{Offset: start, Skipped: start - offset, Data: buf[:got]}, nil
		}
	}
}

// bounds returns the size of the log, and the first kept offset of the part
// that contains offset.
func (r *LogReader) bounds(offset int64) (size, oldest int64) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if offset >= r.log.limits.Head {
		oldest = max(r.log.limits.Head, r.log.reserved-r.log.limits.Tail)
	}
	return r.log.size, oldest
}

// Follow calls fn with all chunks from offset on, in order. It returns nil when
// the log has ended, or fn's error, or the cause of ctx's end. The Data of a
// chunk is valid during the call only. If fn is slower than the program, it
// sees gaps.
func (r *LogReader) Follow(ctx context.Context, offset int64, fn func(Chunk) error) error {
	buf := make([]byte, 32<<10)
	for {
		changed := r.Changed()
		for ctx.Err() == nil {
			chunk, err := r.Read(offset, buf)
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = fn(chunk)
			}
			if err != nil {
				return err
			}
			offset = chunk.Offset + int64(len(chunk.Data))
		}
		if changed == nil {
			return context.Cause(ctx)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
