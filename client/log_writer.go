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
	control *controlFilter // of standard output; nil: control lines are written
	done    uint64         // offset up to which all was passed on or left out
	tail    *tail          // nil: pieces are written immediately
}

func newLogWriter(r LogsRequest) *logWriter {
	w := &logWriter{request: r}
	if !r.ControlLines {
		w.control = &controlFilter{pass: func(p []byte) error { return w.put(dtaskv1.LogStream_LOG_STREAM_STDOUT, r.Stdout, p) }}
	}
	return w
}

// add writes what is new of a piece, and says how much is missing before it.
func (w *logWriter) add(p *dtaskv1.LogPiece) error {
	end := p.GetOffset() + uint64(len(p.GetData()))
	if end <= w.done {
		return nil
	}
	start := max(w.done, p.GetOffset())
	gap, data := start-w.done, p.GetData()[start-p.GetOffset():]
	w.done = end // an error of a writer ends the call
	filtered := w.control != nil && p.GetStream() == dtaskv1.LogStream_LOG_STREAM_STDOUT
	if since := w.request.Since; !since.IsZero() && p.GetTimeMs() < since.UnixMilli() {
		if filtered {
			w.control.skip(data)
		}
		return nil
	}
	out := w.writer(p.GetStream())
	if gap > 0 {
		if err := w.omit(p.GetStream(), firstWriter(out, w.request.Stdout, w.request.Stderr), gap); err != nil {
			return err
		}
	}
	if filtered {
		return w.control.add(data)
	}
	return w.put(p.GetStream(), out, data)
}

// omit writes a line that replaces omitted output.
func (w *logWriter) omit(stream dtaskv1.LogStream, out io.Writer, n uint64) error {
	if w.control != nil {
		if err := w.control.end(); err != nil {
			return err
		}
	}
	return w.put(stream, out, fmt.Appendf(nil, "\n[dtask: %d bytes omitted]\n", n))
}

// put writes to a writer, or adds to the last lines; a nil writer is not wanted.
func (w *logWriter) put(stream dtaskv1.LogStream, out io.Writer, data []byte) error {
	switch {
	case out == nil:
		return nil
	case w.tail != nil:
		w.tail.add(stream, out, data)
		return nil
	}
	if _, err := out.Write(data); err != nil {
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

// end writes what is held back at the end of the log.
func (w *logWriter) end() error {
	if w.control != nil {
		if err := w.control.end(); err != nil {
			return err
		}
	}
	if w.tail != nil {
		return w.endTail()
	}
	return nil
}

// writer returns the writer of a stream; nil if it is not wanted.
func (w *logWriter) writer(s dtaskv1.LogStream) io.Writer {
	if s == dtaskv1.LogStream_LOG_STREAM_STDERR {
		return w.request.Stderr
	}
	return w.request.Stdout
}

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
// same time are counted as they are completed.
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

// add adds output of a stream. A line counts once it is complete, or when the output ends.
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
		t.keep(whole)
		delete(t.open, stream)
	}
}

// flush writes the last lines. Those that are open are the very last ones.
func (t *tail) flush() error {
	for _, stream := range []dtaskv1.LogStream{dtaskv1.LogStream_LOG_STREAM_STDOUT, dtaskv1.LogStream_LOG_STREAM_STDERR} {
		if l, ok := t.open[stream]; ok {
			t.keep(l)
		}
	}
	for i := max(0, t.next-len(t.lines)); i < t.next; i++ {
		l := t.lines[i%len(t.lines)]
		if _, err := l.to.Write(l.text); err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
	}
	return nil
}

func (t *tail) keep(l tailLine) {
	t.lines[t.next%len(t.lines)] = l
	t.next++
}
