package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v4"
)

// payload reads a payload: text as it is, any other value as JSON.
func (r *reader) payload(n *yaml.Node) ([]byte, bool) {
	if isText(n) {
		return []byte(n.Value), r.holds(n, textProblem(n.Value))
	}
	w := &jsonWriter{r: r}
	before := r.total
	w.value(n)
	return w.out.Bytes(), r.total == before
}

// jsonWriter writes nodes as compact JSON. It keeps the order of keys and all
// digits of numbers.
type jsonWriter struct {
	r   *reader
	out bytes.Buffer
}

func (w *jsonWriter) value(n *yaml.Node) {
	n = deref(n)
	switch n.Kind {
	case yaml.MappingNode:
		w.out.WriteByte('{')
		for i, e := range w.r.gather(nil, n, nil) {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.r.enter(e.key)
			w.text(e.at, e.key)
			w.out.WriteByte(':')
			w.value(e.value)
			w.r.leave()
		}
		w.out.WriteByte('}')
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.r.enterItem(i)
			w.value(item)
			w.r.leave()
		}
		w.out.WriteByte(']')
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
		w.scalar(n)
	}
}

func (w *jsonWriter) scalar(n *yaml.Node) {
	switch n.Tag {
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		if v, ok := w.r.truth(n); ok {
			fmt.Fprint(&w.out, v)
		}
	case "!!int", "!!float":
		s, p := jsonNumber(n.Value)
		w.r.holds(n, p)
		w.out.WriteString(s)
	default:
		w.text(n, n.Value)
	}
}

func (w *jsonWriter) text(at *yaml.Node, s string) {
	w.r.holds(at, textProblem(s))
	e := json.NewEncoder(&w.out)
	e.SetEscapeHTML(false)
	// Can't fail for a string and a buffer.
	_ = e.Encode(s)
	w.out.Truncate(w.out.Len() - 1) // the line break
}

// jsonNumber writes a YAML number as JSON without rounding.
func jsonNumber(s string) (string, problem) {
	v := strings.TrimPrefix(strings.ReplaceAll(s, "_", ""), "+")
	sign := ""
	if strings.HasPrefix(v, "-") {
		sign, v = "-", v[1:]
	}
	if len(v) > 1 && v[0] == '0' {
		switch v[1] {
		case 'x', 'o', 'b', 'X', 'O', 'B':
			if i, ok := new(big.Int).SetString(v, 0); ok && len(v) <= 1024 {
				return sign + i.String(), problem{}
			}
		}
		if isDigit(v[1]) {
			return "", problem{fmt.Sprintf("%s is ambiguous: decimal or octal", s), "quote it, or write it without the leading zero"}
		}
	}
	if strings.HasPrefix(v, ".") {
		v = "0" + v
	}
	if i := strings.IndexByte(v, '.'); i >= 0 && (i+1 == len(v) || !isDigit(v[i+1])) {
		v = v[:i] + v[i+1:] // 5. and 5.e3
	}
	if v == "" || !isDigit(v[0]) || !json.Valid([]byte(v)) {
		return "", problem{fmt.Sprintf("not representable in JSON: %s", quote(s)), "quote it, or write a finite decimal number"}
	}
	return sign + v, problem{}
}
