package spec

import (
	"bytes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ParseAll parses a file of one or more jobs, each in its own YAML document.
// Empty documents are ignored. The error is [Faults].
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
			// Parse it again with its offset, so that line numbers refer to the file.
			_, err = Parse(path, append(bytes.Repeat([]byte("\n"), d.line), d.text...), opt)
		}
		faults, _ := err.(Faults) //nolint:errorlint // Parse returns this type
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

// split splits a file at lines that start with three dashes. It omits empty
// documents.
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

// marks reports whether a line starts a document.
func marks(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// blank reports whether a part has only comments and marks.
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
