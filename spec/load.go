package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// load parses the text of a file into a tree, or reports why it can't.
func (r *reader) load(text []byte) *yaml.Node {
	if len(text) > MaxFileBytes {
		r.add(1, 1, wholeFile, fmt.Sprintf("the file has %s", bytesText(len(text))),
			"at most 16 MiB; send larger jobs through the streaming API")
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !r.readable(text) {
		return nil
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		// JSON has escapes and lengths that a YAML parser rejects. Text that is not
		// JSON may still be YAML's flow style.
		root, err := loadJSON(text)
		if err == nil {
			return root
		}
		if strings.HasSuffix(r.file, ".json") {
			line, column := position(text, err.offset)
			r.add(line, column, wholeFile, err.what, "correct the JSON here or just before")
			return nil
		}
	}
	return r.loadYAML(text)
}

// readable rejects control characters and invalid UTF-8.
func (r *reader) readable(text []byte) bool {
	for i, c := range text {
		if c >= ' ' && c != 0x7f || c == '\n' || c == '\t' || c == '\r' {
			continue
		}
		line, column := position(text, i)
		what := fmt.Sprintf("the file contains the control character 0x%02X", c)
		if c == 0 {
			what = "the file contains a NUL byte"
		}
		r.add(line, column, wholeFile, what, "remove it; a job file is plain text")
		return false
	}
	if utf8.Valid(text) {
		return true
	}
	at := 0
	for at < len(text) {
		c, n := utf8.DecodeRune(text[at:])
		if c == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	line, column := position(text, at)
	r.add(line, column, wholeFile, "the file is not valid UTF-8", "save it as UTF-8")
	return false
}

func (r *reader) loadYAML(text []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err != nil {
		r.add(1, 1, wholeFile, "reading the file: "+err.Error(), "correct it")
		return nil
	}
	var document, second yaml.Node
	if err := loader.Load(&document); errors.Is(err, io.EOF) {
		r.add(1, 1, wholeFile, "the file is empty", "write job: with a name and tasks")
		return nil
	} else if err != nil {
		r.syntax(text, err)
		return nil
	}
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		r.syntax(text, err)
		return nil
	default:
		at := &second
		if len(second.Content) > 0 {
			at = second.Content[0]
		}
		r.add(max(at.Line, 1), max(at.Column, 1), wholeFile, "second document", "put each job into its own file")
		return nil
	}
	if len(document.Content) == 0 {
		r.add(1, 1, wholeFile, "the file is empty", "write job: with a name and tasks")
		return nil
	}
	return document.Content[0]
}

// syntax reports a syntax error of the YAML parser.
func (r *reader) syntax(text []byte, err error) {
	line, column, what := 1, 1, err.Error()
	if le, ok := errors.AsType[*yaml.LoadError](err); ok {
		what = le.Message
		if le.ContextMsg != "" {
			what = fmt.Sprintf("%s, %s from line %d", what, le.ContextMsg, max(le.ContextMark.Line, 1))
		}
		line, column = le.Mark.Line, le.Mark.Column
		if line < 1 {
			line, column = position(text, le.Mark.Index)
		}
	}
	do := "correct it here or just before; quote text that holds a colon, # or a bracket"
	if strings.HasPrefix(what, "unknown anchor") {
		do = "write the anchor, as in &name, above its first use"
	}
	r.add(line, max(column, 1), wholeFile, "invalid YAML: "+what, do)
}

// position returns the line and column, both from 1, of an offset.
func position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
