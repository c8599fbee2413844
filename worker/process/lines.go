package process

import (
	"bytes"
	"strconv"
	"strings"
)

// MaxLine bounds how many bytes of a line are kept; the rest is ignored.
const MaxLine = 4 << 10

// progressPrefix starts a line that reports progress.
const progressPrefix = "::progress "

// checkpointLine is a line that reports that the checkpoint directory is
// consistent.
const checkpointLine = "::checkpoint"

// replacement replaces bytes that are not UTF-8.
const replacement = "\uFFFD"

// Progress is a progress report of a command: a line like "::progress 0.42
// halfway there" on its standard output.
type Progress struct {
	Fraction float64 // 0 to 1
	Text     string  // valid UTF-8; often empty
}

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
	switch progress, ok := parseProgress(line); {
	case ok:
		l.onProgress(progress)
	case l.OnCheckpoint != nil && string(bytes.TrimRight(line, " \t")) == checkpointLine:
		l.OnCheckpoint()
	case len(bytes.TrimSpace(line)) > 0:
		// The two buffers are swapped: a program with many lines creates no
		// garbage.
		l.last, l.line = line, l.last
	}
	l.line = l.line[:0]
}

// parseProgress parses the prefix, a fraction from 0 to 1 and, after spaces,
// any text. Anything else is an ordinary line.
func parseProgress(line []byte) (Progress, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(progressPrefix))
	if !ok {
		return Progress{}, false
	}
	number, text, _ := strings.Cut(strings.TrimSpace(string(rest)), " ")
	fraction, err := strconv.ParseFloat(number, 64)
	if err != nil || !(fraction >= 0 && fraction <= 1) { // false for NaN too
		return Progress{}, false
	}
	return Progress{Fraction: fraction, Text: strings.ToValidUTF8(strings.TrimSpace(text), replacement)}, true
}
