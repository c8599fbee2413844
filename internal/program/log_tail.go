package program

import (
	"bytes"
	"io"
	"sync"
)

// A LogTail is a writer of lines that keeps the last ones in memory, so that they can be
// read wherever the log goes. Safe for concurrent use.
type LogTail struct {
	out  io.Writer
	size int

	mu   sync.Mutex // guards what follows
	ring []byte     // grows up to size
	next int        // where the next byte goes once the ring is full
}

// NewLogTail makes a LogTail that passes everything on to out, and keeps size bytes.
func NewLogTail(out io.Writer, size int) *LogTail { return &LogTail{out: out, size: size} }

// Write implements io.Writer.
func (t *LogTail) Write(b []byte) (int, error) {
	t.keep(b)
	return t.out.Write(b)
}

func (t *LogTail) keep(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b = b[max(0, len(b)-t.size):]
	grow := min(t.size-len(t.ring), len(b))
	t.ring = append(t.ring, b[:grow]...)
	for b = b[grow:]; len(b) > 0; {
		n := copy(t.ring[t.next:], b)
		t.next, b = (t.next+n)%t.size, b[n:]
	}
}

// Bytes returns the last whole lines, the oldest first.
func (t *LogTail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := bytes.Join([][]byte{t.ring[t.next:], t.ring[:t.next]}, nil)
	if len(t.ring) == t.size {
		_, tail, _ = bytes.Cut(tail, []byte("\n")) // the first line may be cut
	}
	return tail
}
