package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxHeldLine is how much of a line is held back until the line is complete, in bytes.
const maxHeldLine = 64 << 10

// A lockedOutput is standard output and standard error for several writers. Both have
// one lock, because they may be the same terminal.
type lockedOutput struct {
	mu             sync.Mutex // held while writing
	stdout, stderr io.Writer
	quiet          bool
}

func newLockedOutput(stdout, stderr io.Writer, quiet bool) *lockedOutput {
	return &lockedOutput{stdout: terminalSafe(stdout), stderr: terminalSafe(stderr), quiet: quiet}
}

// note writes a line to standard error unless -q is set.
func (o *lockedOutput) note(format string, args ...any) {
	if o.quiet {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = fmt.Fprintf(o.stderr, "dtaskctl: "+format+"\n", args...) // as output.warn
}

func (o *lockedOutput) stdoutOf(prefix string) *taskWriter {
	return &taskWriter{mu: &o.mu, to: o.stdout, prefix: prefix}
}

func (o *lockedOutput) stderrOf(prefix string) *taskWriter {
	return &taskWriter{mu: &o.mu, to: o.stderr, prefix: prefix}
}

// A taskWriter writes the output of one task to a stream that tasks share: as it is, or,
// with a prefix, in whole lines that start with the prefix.
type taskWriter struct {
	mu     *sync.Mutex // of to
	to     io.Writer
	prefix string

	held  []byte // the begin of an incomplete line
	wrote bool   // Write was called with data
}

// Write implements io.Writer.
func (w *taskWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.wrote = true
	if w.prefix == "" {
		return len(p), w.write(p)
	}
	w.held = append(w.held, p...)
	whole := bytes.LastIndexByte(w.held, '\n') + 1
	if whole == 0 && len(w.held) < maxHeldLine {
		return len(p), nil
	}
	if whole == 0 {
		whole = len(w.held)
	}
	err := w.write(w.prefixed(w.held[:whole]))
	w.held = append(w.held[:0], w.held[whole:]...)
	return len(p), err
}

// flush writes an incomplete last line, and completes it.
func (w *taskWriter) flush() error {
	if len(w.held) == 0 {
		return nil
	}
	err := w.write(w.prefixed(w.held))
	w.held = nil
	return err
}

// prefixed returns text with the prefix before each line. The last one is completed.
func (w *taskWriter) prefixed(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		b.WriteString(w.prefix)
		b.Write(line)
	}
	if text[len(text)-1] != '\n' {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func (w *taskWriter) write(p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.to.Write(p); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
