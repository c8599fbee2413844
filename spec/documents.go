package spec

import (
	"bytes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ParseAll reads a file of one or several jobs, each a YAML document of its own,
// as Parse does; what is empty between two documents is passed over. The error is
// [Faults]: all that are in the file.
func ParseAll(path string, text []byte, opt Options) ([]*dtaskv1.JobSpec, error) {
	documents := split(text)
	if len(text) > MaxFileBytes || len(documents) < 2 {
		job, err := Parse(path, text, opt)
		if err != nil {
			return nil, err
		}
		return []*dtaskv1.JobSpec{job}, nil
	}
	all := collector{file: path}
	jobs := make([]*dtaskv1.JobSpec, 0, len(documents))
	for _, d := range documents {
		job, err := Parse(path, d.text, opt)
		if err != nil {
			// Once more, below as many lines as are above it in the file, so that
			// every line that is named is the file's own.
			_, err = Parse(path, append(bytes.Repeat([]byte("\n"), d.line), d.text...), opt)
		}
		faults, _ := err.(Faults) //nolint:errorlint // Parse gives this type itself
		for _, f := range faults {
			all.add(f.Line, f.Column, f.Where, f.What, f.Do)
		}
		jobs = append(jobs, job)
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	return jobs, nil
}

// document is a part of a file.
type document struct {
	line int // lines above it
	text []byte
}

// split cuts a file where a line begins with three dashes, which is a document's
// mark wherever it stands. Parts that hold nothing are left out, and so is all of
// it if it is empty.
func split(text []byte) []document {
	var list []document
	from, line := 0, 0 // of the document
	keep := func(to int) {
		if d := text[from:to]; !blank(d) {
			list = append(list, document{line: line, text: d})
		}
	}
	for at, n := 0, 0; at < len(text); n++ {
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		if marks(text[at:end]) {
			keep(at)
			from, line = at, n
		}
		at = end
	}
	keep(len(text))
	return list
}

// marks reports whether a line begins a document.
func marks(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// blank reports whether a part holds nothing but comments and marks.
func blank(part []byte) bool {
	for line := range bytes.Lines(part) {
		if marks(line) {
			line = line[len("---"):]
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}
