package client

import (
	"bytes"
	"fmt"
	"io"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A logWriter writes the pieces of a log that a request selects, each byte once,
// although pieces are received again after a failure.
type logWriter struct {
	request LogsRequest
	done    uint64 // offset up to which all was written or left out
	tail    *tail  // nil: pieces are written at once
}

// add writes what is new of a piece, and says how much is missing before it.
func (w *logWriter) add(p *dtaskv1.LogPiece) error {
	end := p.GetOffset() + uint64(len(p.GetData()))
	if end <= w.done {
		return nil
	}
	if since := w.request.Since; !since.IsZero() && p.GetTimeMs() < since.UnixMilli() {
		w.done = end
		return nil
	}
	start := max(w.done, p.GetOffset())
	gap := start - w.done
	data := p.GetData()[start-p.GetOffset():]
	out := w.writer(p.GetStream())
	if w.tail != nil {
		w.done = end
		if gap > 0 {
			w.tail.add(p.GetStream(), firstWriter(out, w.request.Stdout, w.request.Stderr), omitted(gap))
		}
		w.tail.add(p.GetStream(), out, data)
		return nil
	}
	if gap > 0 {
		if _, err := firstWriter(out, w.request.Stdout, w.request.Stderr).Write(omitted(gap)); err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
		w.done = start
	}
	if out == nil {
		w.done = end
		return nil
	}
	n, err := out.Write(data)
	w.done = start + uint64(n) //nolint:gosec // not negative
	if err != nil {
		return fmt.Errorf("writing log: %w", err)
	}
	return nil
}

// endTail writes the lines that are left of what there was at the start.
func (w *logWriter) endTail() error {
	t := w.tail
	w.tail = nil
	return t.flush()
}

// writer returns the writer of a stream; nil if it is not wanted.
func (w *logWriter) writer(s dtaskv1.LogStream) io.Writer {
	if s == dtaskv1.LogStream_LOG_STREAM_STDERR {
		return w.request.Stderr
	}
	return w.request.Stdout
}

func omitted(n uint64) []byte { return fmt.Appendf(nil, "\n[dtask: %d bytes omitted]\n", n) }

// firstWriter returns the first writer that is wanted.
func firstWriter(list ...io.Writer) io.Writer {
	for _, w := range list {
		if w != nil {
			return w
		}
	}
	return io.Discard
}

// A tail keeps the last lines of an output. Lines of two streams that are written at the
// same time are counted as they arrive.
type tail struct {
	lines []tailLine                     // a ring
	next  int                            // in lines
	open  map[dtaskv1.LogStream]tailLine // not complete
}

type tailLine struct {
	to   io.Writer
	text []byte
}

func newTail(lines int) *tail {
	return &tail{lines: make([]tailLine, lines), open: make(map[dtaskv1.LogStream]tailLine)}
}

// add adds output of a stream. A line counts once it is complete; what is open at the end
// is kept.
func (t *tail) add(stream dtaskv1.LogStream, to io.Writer, data []byte) {
	if to == nil {
		return
	}
	for line := range bytes.Lines(data) {
		whole := tailLine{to, append(t.open[stream].text, line...)}
		if line[len(line)-1] != '\n' {
			t.open[stream] = whole
			continue
		}
		t.lines[t.next%len(t.lines)] = whole
		t.next++
		delete(t.open, stream)
	}
}

func (t *tail) flush() error {
	for i := max(0, t.next-len(t.lines)); i < t.next; i++ {
		l := t.lines[i%len(t.lines)]
		if _, err := l.to.Write(l.text); err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
	}
	for _, l := range t.open {
		if _, err := l.to.Write(l.text); err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
	}
	return nil
}
