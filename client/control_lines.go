package client

import (
	"bytes"

	"github.com/dtask/dtask/internal/controlline"
)

// A controlFilter passes on standard output without its control lines. It holds back the
// beginning of a line only while that may be the beginning of a control line.
type controlFilter struct {
	pass   func([]byte) error
	held   []byte
	inside lineKind // of the line that the last call has not completed
}

// A lineKind is what is known of an incomplete line.
type lineKind uint8

const (
	lineStart   lineKind = iota // nothing, or it is held back
	lineOutput                  // it is output
	lineControl                 // it is a control line
)

// add passes on what is output of p, in as few pieces as possible.
func (f *controlFilter) add(p []byte) error {
	from, to := 0, 0 // p[from:to] is output that was not passed on yet
	for line := range bytes.Lines(p) {
		ended := line[len(line)-1] == '\n'
		if f.inside == lineOutput || f.inside == lineStart && len(f.held) == 0 && !controlline.MayBegin(line) {
			f.inside = kindAfter(lineOutput, ended)
			to += len(line)
			continue
		}
		if err := f.output(p[from:to]); err != nil {
			return err
		}
		to += len(line)
		from = to
		if f.inside == lineControl {
			f.inside = kindAfter(lineControl, ended)
			continue
		}
		if err := f.hold(line, ended); err != nil {
			return err
		}
	}
	return f.output(p[from:to])
}

// hold adds to the line that is held back, and decides what it is if that is known.
func (f *controlFilter) hold(part []byte, ended bool) error {
	f.held = append(f.held, part...)
	if !ended && len(f.held) < controlline.MaxLine && controlline.MayBegin(f.held) {
		return nil
	}
	kind := lineOutput
	if controlline.Is(f.held) {
		kind = lineControl
	}
	f.inside = kindAfter(kind, ended)
	if kind == lineControl {
		f.held = f.held[:0]
		return nil
	}
	return f.flush()
}

// skip notes output that is left out although it may contain the beginning of a line.
func (f *controlFilter) skip(p []byte) {
	if len(p) > 0 {
		f.held = f.held[:0]
		f.inside = kindAfter(lineOutput, p[len(p)-1] == '\n')
	}
}

// end passes on what is held back: the output ends, or has a gap. After a gap, the rest
// of a line may follow, so that the next line end is awaited.
func (f *controlFilter) end() error {
	f.inside = lineOutput
	if controlline.Is(f.held) {
		f.held = f.held[:0]
	}
	return f.flush()
}

func (f *controlFilter) flush() error {
	held := f.held
	f.held = nil
	return f.output(held)
}

func (f *controlFilter) output(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return f.pass(p)
}

// kindAfter returns what is known of the current line after a part of one of this kind.
func kindAfter(kind lineKind, ended bool) lineKind {
	if ended {
		return lineStart
	}
	return kind
}
