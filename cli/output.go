package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// An output is the streams of a command, and the flags that determine what it
// writes to them.
type output struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
	// patience multiplies how long a command waits for what it can do without; 0 is 1.
	// The tests wait longer: they run on machines that may be slow.
	patience int

	format outputFormat
	color  colorMode
	quiet  bool
}

// optional returns a context that limits a request that a command can do without.
func (o *output) optional(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.patient(limit))
}

// patient returns how long a command waits for what it can do without.
func (o *output) patient(limit time.Duration) time.Duration {
	return limit * time.Duration(max(o.patience, 1))
}

// A view is the output of a command: a document for programs, and text for people.
type view struct {
	doc   any
	tasks iter.Seq2[*dtaskv1.Task, error] // nil, or the tasks that doc lacks at its end
	// elements, if not nil, are what the list with a name lacks at the end of doc.
	list     string
	elements iter.Seq2[any, error]
	text     func(*show.Printer)
}

// lines is a view whose text is fixed.
func lines(doc any, text ...string) view {
	return view{doc: doc, text: func(p *show.Printer) {
		for _, line := range text {
			p.Line("%s", line)
		}
	}}
}

// print writes a view in the format of --output. JSON with a long list is written while
// that arrives.
func (o *output) print(v view) error {
	if !v.streams() || o.format != outputJSON {
		return o.write(o.render(v))
	}
	return v.stream(o.out)
}

// streams reports whether the document is written while its list arrives.
func (v view) streams() bool { return v.tasks != nil || v.elements != nil }

// stream writes the document as JSON while its list arrives.
func (v view) stream(w io.Writer) error {
	if v.tasks != nil {
		return document.WriteWithTasks(w, v.doc, v.tasks)
	}
	return document.WriteWithList(w, v.doc, v.list, v.elements)
}

// write writes formatted output, or returns the error of formatting it.
func (o *output) write(text []byte, err error) error {
	if err != nil {
		return err
	}
	if _, err := o.out.Write(text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func (o *output) render(v view) ([]byte, error) {
	switch o.format {
	case outputJSON:
		text, err := document.MarshalIndent(v.doc)
		return append(text, '\n'), err
	case outputYAML:
		doc := v.doc
		if v.streams() {
			var whole bytes.Buffer
			if err := v.stream(&whole); err != nil {
				return nil, err
			}
			doc = json.RawMessage(whole.Bytes())
		}
		return show.YAML(doc)
	case outputTable:
	}
	p := show.NewPrinter(o.colored(o.out), o.now())
	v.text(p)
	return p.Bytes(), nil
}

// printIDs prints one ID per line.
func (o *output) printIDs(ids []string) error {
	p := show.NewPrinter(false, o.now())
	for _, id := range ids {
		p.Line("%s", show.Clean(id))
	}
	return o.write(p.Bytes(), nil)
}

// note writes a line to standard error unless -q is set.
func (o *output) note(format string, args ...any) {
	if !o.quiet {
		o.warn(format, args...)
	}
}

// warn writes a line to standard error. A command doesn't fail if this does.
func (o *output) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(o.err, format+"\n", args...)
}

// report prints an error message, its faults and a hint.
func (o *output) report(message string, faults []string, hint string) {
	o.warn("dtaskctl: %s", show.Clean(message))
	for _, fault := range faults {
		o.warn("  %s", show.Clean(fault))
	}
	if hint != "" {
		o.warn("hint: %s", hint)
	}
}

// ask asks the user a question. Only y and yes are consent.
func (o *output) ask(question string) (yes bool, err error) {
	_, _ = fmt.Fprintf(o.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(o.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// textOutput reports whether standard output is for people.
func (o *output) textOutput() bool { return o.format == outputTable }

// summaryWriter is standard output, or standard error if standard output has a
// document.
func (o *output) summaryWriter() io.Writer {
	if o.textOutput() {
		return o.out
	}
	return o.err
}

// colored reports whether output to w is colored.
func (o *output) colored(w io.Writer) bool {
	switch o.color {
	case colorAlways:
		return true
	case colorNever:
		return false
	case colorAuto:
	}
	if o.getenv("NO_COLOR") != "" {
		return false
	}
	for _, name := range []string{"CLICOLOR_FORCE", "FORCE_COLOR"} {
		if v := o.getenv(name); v != "" && v != "0" {
			return true
		}
	}
	return isTerminal(w) && o.getenv("TERM") != "dumb"
}

// isTerminal reports whether a stream, input or output, is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // file descriptors are small
}
