package process

import (
	"bytes"
	"strings"

	"github.com/dtask/dtask/internal/controlline"
)

// MaxLine bounds how many bytes of a line are kept; the rest is ignored.
const MaxLine = controlline.MaxLine

// replacement replaces bytes that are not UTF-8.
const replacement = "\uFFFD"

// Progress is a progress report of a command: a line like "::progress 0.42
// halfway there" on its standard output.
type Progress = controlline.Progress

// Lines is a Writer for standard output that detects reports, and keeps the
// last line, which is a command's result if it wrote no result file. It uses
// the memory of two lines. Only one goroutine may use it at once.
type Lines struct {
	onProgress func(Progress)
	// OnCheckpoint is called for each line "::checkpoint". Optional.
	OnCheckpoint func()

	line []byte // the unfinished line, at most MaxLine bytes of it
	last []byte
}

// NewLines returns a Lines. onProgress may be nil; it is called from Write and
// Finish, so it must not block.
func NewLines(onProgress func(Progress)) *Lines {
	if onProgress == nil {
		onProgress = func(Progress) {}
	}
	return &Lines{onProgress: onProgress}
}

// Write adds a chunk of output. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		l.line = append(l.line, part[:min(len(part), MaxLine-len(l.line))]...)
		if ended {
			l.endLine()
		}
		p = rest
	}
	return n, nil
}

// Finish ends the output and its unfinished line. It returns the last line that
// was neither blank nor a report, without its line end, as valid UTF-8 of at
// most MaxLine bytes.
func (l *Lines) Finish() string {
	l.endLine()
	last := strings.ToValidUTF8(string(l.last), replacement)
	// The replacement is longer than the replaced bytes, and cutting may split
	// one.
	return strings.ToValidUTF8(last[:min(len(last), MaxLine)], "")
}

func (l *Lines) endLine() {
	line := bytes.TrimSuffix(l.line, []byte("\r"))
	switch progress, ok := controlline.ParseProgress(line); {
	case ok:
		l.onProgress(progress)
	case l.OnCheckpoint != nil && controlline.IsCheckpoint(line):
		l.OnCheckpoint()
	case len(bytes.TrimSpace(line)) > 0:
		// The two buffers are swapped: a program with many lines creates no
		// garbage.
		l.last, l.line = line, l.last
	}
	l.line = l.line[:0]
}
