// Package controlline defines the lines by which a command reports to its worker. A line
// of standard output is a control line if it is one of
//
//	::progress FRACTION TEXT
//	::checkpoint
//
// All other lines are output. A worker acts on control lines, and clients hide them from
// the logs.
package controlline

import (
	"bytes"
	"strconv"
	"strings"
)

// MaxLine bounds how many bytes of a line are read; the rest is ignored.
const MaxLine = 4 << 10

const (
	progressPrefix = "::progress "
	checkpoint     = "::checkpoint"
)

// replacement replaces bytes that are not UTF-8.
const replacement = "\uFFFD"

// Progress is a progress report of a command, such as "::progress 0.42 halfway there".
type Progress struct {
	Fraction float64 // 0 to 1
	Text     string  // valid UTF-8; often empty
}

// ParseProgress parses a line that reports progress, at most its first MaxLine bytes and
// without its line end: the prefix, a fraction from 0 to 1 and, after spaces, any text.
func ParseProgress(line []byte) (Progress, bool) {
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

// IsCheckpoint reports whether a line, without its line end, reports that the checkpoint
// directory is consistent.
func IsCheckpoint(line []byte) bool {
	return string(bytes.TrimRight(line, " \t")) == checkpoint
}

// Is reports whether a line is a control line. The line may be complete or cut after
// MaxLine bytes, with or without its line end.
func Is(line []byte) bool {
	line = bytes.TrimSuffix(line[:min(len(line), MaxLine)], []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	_, progress := ParseProgress(line)
	return progress || IsCheckpoint(line)
}

// MayBegin reports whether a control line may begin with these bytes.
func MayBegin(begin []byte) bool {
	for _, prefix := range []string{progressPrefix, checkpoint} {
		if n := min(len(begin), len(prefix)); string(begin[:n]) == prefix[:n] {
			return true
		}
	}
	return false
}
