package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// jsonError describes invalid JSON.
type jsonError struct {
	what   string
	offset int
}

// jsonLoader builds from JSON the tree of the equivalent YAML.
type jsonLoader struct {
	text    []byte
	decoder *json.Decoder
	// here is the position of text[at], which is at the last token.
	at   int
	here mark
}

// loadJSON parses a text that is exactly one JSON value.
func loadJSON(text []byte) (*yaml.Node, *jsonError) {
	l := &jsonLoader{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), here: mark{1, 1}}
	l.decoder.UseNumber()
	token, err := l.decoder.Token()
	if err != nil {
		return nil, l.fail(err)
	}
	root, err := l.value(token, l.mark(1), 0)
	if err != nil {
		return nil, l.fail(err)
	}
	if _, err := l.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &jsonError{"invalid JSON: text after the end of the value", int(l.decoder.InputOffset())}
	}
	return root, nil
}

func (l *jsonLoader) fail(err error) *jsonError {
	e := &jsonError{"invalid JSON: " + err.Error(), int(l.decoder.InputOffset())}
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		e.offset = int(max(se.Offset-1, 0))
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		e.what, e.offset = "invalid JSON: unexpected end", len(l.text)
	}
	return e
}

var errTooDeep = errors.New("nested too deeply")

// value builds the node of a token, with its children.
func (l *jsonLoader) value(token json.Token, at mark, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: at.line, Column: at.column}
	switch t := token.(type) {
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", "false"
		if t {
			n.Value = "true"
		}
	case json.Delim:
		if depth > maxDepth+1 {
			return nil, errTooDeep
		}
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		return n, l.children(n, depth)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// children reads up to the closing bracket of n.
func (l *jsonLoader) children(n *yaml.Node, depth int) error {
	for l.decoder.More() {
		before := int(l.decoder.InputOffset())
		token, err := l.decoder.Token()
		if err != nil {
			return err
		}
		child, err := l.value(token, l.markAfter(before), depth+1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
	_, err := l.decoder.Token()
	return err
}

// mark is a position in the text.
type mark struct{ line, column int }

// markAfter returns the position of the token that was read after an offset.
func (l *jsonLoader) markAfter(offset int) mark {
	for offset < len(l.text) && bytes.IndexByte([]byte(" \t\r\n,:"), l.text[offset]) >= 0 {
		offset++
	}
	return l.count(offset)
}

// mark returns the position of the token of size bytes that was just read.
func (l *jsonLoader) mark(size int) mark { return l.count(int(l.decoder.InputOffset()) - size) }

// count returns the position of an offset, which must not decrease.
func (l *jsonLoader) count(offset int) mark {
	for ; l.at < offset; l.at++ {
		switch c := l.text[l.at]; {
		case c == '\n':
			l.here = mark{l.here.line + 1, 1}
		case utf8.RuneStart(c):
			l.here.column++
		}
	}
	return l.here
}
