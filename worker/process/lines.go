package process

import (
	"bytes"
	"strconv"
	"strings"
)

// MaxLine is how many bytes of a line are looked at and kept; the rest of a
// longer one is passed over.
const MaxLine = 4 << 10

// progressMark begins a line that reports progress.
const progressMark = "::progress "

// checkpointMark is the line that says that the checkpoint folder is consistent.
const checkpointMark = "::checkpoint"

// replacement stands for bytes that are not UTF-8.
const replacement = "\uFFFD"

// Progress is one report of a command on its standard output, a line like
// "::progress 0.42 halfway there".
type Progress struct {
	Fraction float64 // 0 to 1
	Text     string  // valid UTF-8; often empty
}

// Lines is a Writer for standard output that watches for two things: reports of
// progress, and the last line, which is a command's result when it wrote no
// result file. It keeps at most two lines. It is used by one goroutine at a time.
type Lines struct {
	onProgress func(Progress)
	// OnCheckpoint, if set, is called for each line "::checkpoint", as onProgress is
	// for progress.
	OnCheckpoint func()

	line     []byte // the unfinished line, at most MaxLine bytes of it
	long     bool   // the unfinished line had more
	last     []byte
	lastLong bool
}

// NewLines returns a splitter. onProgress may be nil; it is called from Write
// and Finish, so it must not block.
func NewLines(onProgress func(Progress)) *Lines {
	if onProgress == nil {
		onProgress = func(Progress) {}
	}
	return &Lines{onProgress: onProgress}
}

// Write takes the next chunk of output. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.add(p)
			break
		}
		l.add(p[:end])
		l.endLine()
		p = p[end+1:]
	}
	return n, nil
}

// Finish ends the output: an unfinished line counts as one. It returns the last
// line that was neither blank nor a report, without its line end, as
// valid UTF-8 of at most MaxLine bytes, and whether there was more of it.
func (l *Lines) Finish() (last string, cut bool) {
	l.endLine()
	last = strings.ToValidUTF8(string(l.last), replacement)
	if len(last) <= MaxLine {
		return last, l.lastLong
	}
	// The replacement is longer than what it replaces. Cutting may split one.
	return strings.ToValidUTF8(last[:MaxLine], ""), true
}

func (l *Lines) add(part []byte) {
	room := MaxLine - len(l.line)
	if len(part) > room {
		part, l.long = part[:room], true
	}
	l.line = append(l.line, part...)
}

func (l *Lines) endLine() {
	line := bytes.TrimSuffix(l.line, []byte("\r"))
	switch progress, ok := parseProgress(line); {
	case ok:
		l.onProgress(progress)
	case l.OnCheckpoint != nil && string(bytes.TrimRight(line, " \t")) == checkpointMark:
		l.OnCheckpoint()
	case len(bytes.TrimSpace(line)) > 0:
		// The two buffers take turns: a program of many lines costs no garbage.
		l.last, l.line, l.lastLong = line, l.last, l.long
	}
	l.line, l.long = l.line[:0], false
}

// parseProgress understands the mark, a fraction from 0 to 1 and, after spaces,
// any text. Anything else is an ordinary line.
func parseProgress(line []byte) (Progress, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(progressMark))
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
