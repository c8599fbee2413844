package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// A Chunk is a piece of a log.
type Chunk struct {
	Offset int64 // of the first byte of Data, in what the program wrote
	// Skipped is how many bytes before Offset were asked for and are not kept.
	Skipped int64
	Data    []byte
}

// Gap is the line that stands for the skipped bytes, or an empty string.
func (c Chunk) Gap() string {
	if c.Skipped == 0 {
		return ""
	}
	return fmt.Sprintf("\n[dtask: %d bytes left out]\n", c.Skipped)
}

// A LogReader reads a log by offset, while it is being written or afterwards. It
// has its own handle of the file: it goes on when the log is closed or the file
// removed. Its methods may be called by several goroutines.
type LogReader struct {
	file   *os.File
	limits LogLimits
	live   *Log  // nil if nobody writes
	size   int64 // of a log that nobody writes
}

// NewReader opens a reader of a log that is perhaps still written. The caller
// must Close it.
func (l *Log) NewReader() (*LogReader, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return &LogReader{file: file, limits: l.limits, live: l}, nil
}

// OpenLog opens the file of a log that nobody writes any more. A missing one is
// an error that is fs.ErrNotExist. The caller must Close the reader.
func OpenLog(path string) (*LogReader, error) {
	file, err := os.Open(path) //nolint:gosec // the caller's own file
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	r := &LogReader{file: file}
	if err := r.readLayout(); err != nil {
		_ = file.Close() // only read
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return r, nil
}

// readLayout finds out whether the file has a ring. Without a trailer that fits
// the file's length exactly, it is plain output.
func (r *LogReader) readLayout() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	r.size = info.Size()
	r.limits = LogLimits{Head: r.size, Tail: 1}
	if r.size < int64(trailerLength) {
		return nil
	}
	buf := make([]byte, trailerLength)
	if _, err := r.file.ReadAt(buf, r.size-int64(trailerLength)); err != nil {
		return err
	}
	var m LogLimits
	var size int64
	if n, err := fmt.Sscanf(string(buf), trailerFormat, &m.Head, &m.Tail, &size); err != nil || n != 3 {
		return nil //nolint:nilerr // no trailer: plain output
	}
	if m.Head >= 0 && m.Tail > 0 && m.wraps(size) && m.Head+m.Tail+int64(trailerLength) == r.size {
		r.limits, r.size = m, size
	}
	return nil
}

// Close frees the file.
func (r *LogReader) Close() error { return r.file.Close() }

// A logState is what a reader knows of a log at one moment.
type logState struct {
	size, reserved int64
	ended          bool // nothing will be added
}

func (r *LogReader) state() logState {
	if r.live == nil {
		return logState{size: r.size, reserved: r.size, ended: true}
	}
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	return logState{size: r.live.size, reserved: r.live.reserved, ended: r.live.closed}
}

// Changed is closed when the log grows or ends after this call; nil if it has
// ended. Call it, then read to io.EOF, then wait: so nothing is missed.
func (r *LogReader) Changed() <-chan struct{} {
	if r.live == nil {
		return nil
	}
	r.live.mu.Lock()
	defer r.live.mu.Unlock()
	if r.live.closed {
		return nil
	}
	if r.live.changed == nil {
		r.live.changed = make(chan struct{})
	}
	return r.live.changed
}

// Size is how many bytes the program has written so far, kept or not.
func (r *LogReader) Size() int64 { return r.state().size }

// Read reads the first bytes at or after offset that are kept, at most len(buf),
// into buf. At the present end it returns io.EOF, and for a negative offset an
// error.
func (r *LogReader) Read(offset int64, buf []byte) (Chunk, error) {
	if offset < 0 {
		return Chunk{}, fmt.Errorf("reading the log: %w", os.ErrInvalid)
	}
	for {
		state := r.state()
		at := max(offset, r.oldest(offset, state.reserved))
		if at >= state.size {
			return Chunk{Offset: offset}, io.EOF
		}
		place, room := r.limits.place(at)
		n := min(int64(len(buf)), room, state.size-at)
		got, err := r.file.ReadAt(buf[:n], place)
		if err != nil && !errors.Is(err, io.EOF) {
			return Chunk{}, fmt.Errorf("reading the log: %w", err)
		}
		if int64(got) < n { // somebody else cut the file
			return Chunk{}, fmt.Errorf("reading the log: %w", io.ErrUnexpectedEOF)
		}
		// A writer may have come round the ring while we read: look again.
		if r.oldest(at, r.state().reserved) <= at {
			return Chunk{Offset: at, Skipped: at - offset, Data: buf[:got]}, nil
		}
	}
}

// oldest is the first kept offset at or after the part that offset is in.
func (r *LogReader) oldest(offset, reserved int64) int64 {
	if offset < r.limits.Head {
		return 0
	}
	return max(r.limits.Head, reserved-r.limits.Tail)
}

// Follow calls fn with every chunk from offset on, in order, and returns nil when
// the log has ended, or fn's error, or the cause of ctx's end. A chunk's Data is
// valid during the call only. A fn that is slower than the program sees gaps.
func (r *LogReader) Follow(ctx context.Context, offset int64, fn func(Chunk) error) error {
	buf := make([]byte, 32<<10)
	for {
		changed := r.Changed()
		var err error
		if offset, err = r.readAll(ctx, offset, buf, fn); err != nil {
			return err
		}
		if changed == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readAll hands on what there is now and returns the offset after it.
func (r *LogReader) readAll(ctx context.Context, offset int64, buf []byte, fn func(Chunk) error) (int64, error) {
	for ctx.Err() == nil {
		chunk, err := r.Read(offset, buf)
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		if err := fn(chunk); err != nil {
			return offset, err
		}
		offset = chunk.Offset + int64(len(chunk.Data))
	}
	return offset, context.Cause(ctx)
}

// WriteTo writes what is kept now, with a line in the place of what is not.
func (r *LogReader) WriteTo(w io.Writer) (int64, error) {
	var written int64
	_, err := r.readAll(context.Background(), 0, make([]byte, 32<<10), func(c Chunk) error {
		for _, part := range [][]byte{[]byte(c.Gap()), c.Data} {
			n, err := w.Write(part)
			written += int64(n)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return written, err
}
