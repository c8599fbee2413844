package array

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

const (
	opening = "${{"
	closing = "}}"
)

// Item is one item of an array.
type Item struct {
	Index uint32
	JSON  []byte // encoded; nil: the index is the item
}

// Text returns the item as text: a JSON string without quotes, any other value
// as JSON.
func (it Item) Text() string {
	if it.JSON == nil {
		return strconv.FormatUint(uint64(it.Index), 10)
	}
	return textOf(it.JSON)
}

func textOf(encoded []byte) string {
	var s string
	if len(encoded) > 0 && encoded[0] == '"' && json.Unmarshal(encoded, &s) == nil {
		return s
	}
	return string(encoded)
}

// Scope has what the expressions of a task can refer to.
type Scope struct {
	Item *Item // nil: the task is not of an array
	Run  *Run  // nil: the job is not the run of a schedule
}

// UnknownError reports an unknown expression between ${{ and }}.
type UnknownError struct{ Text string }

// Error lists the known expressions.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("the expression %s is not known", strconv.Quote(e.Text))
}

// FieldError reports an item without a field that an expression needs.
type FieldError struct {
	Field string
	Index uint32
}

// Error names the field and the item.
func (e *FieldError) Error() string {
	return fmt.Sprintf("item %d has no field %s", e.Index, strconv.Quote(e.Field))
}

// part is a text of a template and the expression that follows it.
type part struct {
	text       string
	expression string // such as "item.FIELD"; empty: the template ends
	whole      bool   // the expression is a whole JSON string; its quotes are not in the texts
}

// split parses a template. In JSON, an expression that is a whole string
// includes the quotes.
func split(text string, isJSON bool) ([]part, error) {
	var parts []part
	var b strings.Builder
	for {
		at := strings.Index(text, opening)
		if at < 0 {
			b.WriteString(text)
			return append(parts, part{text: b.String()}), nil
		}
		if at > 0 && text[at-1] == '$' { // $${{ is escaped
			b.WriteString(text[:at-1])
			b.WriteString(opening)
			text = text[at+len(opening):]
			continue
		}
		inside, rest, ended := strings.Cut(text[at+len(opening):], closing)
		p := part{expression: strings.TrimSpace(inside)}
		if !ended || !known(p.expression) {
			return nil, &UnknownError{Text: clip(text[at:])}
		}
		b.WriteString(text[:at])
		p.text = b.String()
		if isJSON && strings.HasSuffix(p.text, `"`) && !strings.HasSuffix(p.text, `\"`) && strings.HasPrefix(rest, `"`) {
			p.text, p.whole, rest = p.text[:len(p.text)-1], true, rest[1:]
		}
		b.Reset()
		parts, text = append(parts, p), rest
	}
}

func clip(text string) string {
	const most = 40
	if at := strings.Index(text, closing); at >= 0 && at+len(closing) <= most {
		return text[:at+len(closing)]
	}
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

func known(expression string) bool { return ofItem(expression) || ofRun(expression) }

// ofItem reports whether an expression is about the item of an array.
func ofItem(expression string) bool {
	field, isField := strings.CutPrefix(expression, "item.")
	return expression == "index" || expression == "item" || isField && field != "" && !strings.ContainsAny(field, " \t\r\n{}\"'\\")
}

// Opens reports whether a text contains ${{, which may start an expression.
func Opens[T string | []byte](text T) bool {
	return len(text) >= len(opening) && strings.Contains(string(text), opening)
}

// Check checks the expressions of a template. The error is an [*UnknownError].
func Check(text string) error {
	_, err := split(text, false)
	return err
}

// UsesItem reports whether a text contains an expression about the item of an array.
func UsesItem(text string) bool { return uses(text, ofItem) }

// UsesRun reports whether a text contains an expression about the run of a schedule.
func UsesRun(text string) bool { return uses(text, ofRun) }

func uses(text string, of func(expression string) bool) bool {
	for {
		before, rest, found := strings.Cut(text, opening)
		if !found {
			return false
		}
		inside, _, ended := strings.Cut(rest, closing)
		if ended && !strings.HasSuffix(before, "$") && of(strings.TrimSpace(inside)) {
			return true
		}
		text = rest
	}
}

// Fields returns the item fields that a template uses.
func Fields(text string) []string {
	parts, err := split(text, false)
	if err != nil {
		return nil
	}
	var fields []string
	for _, p := range parts {
		if field, ok := strings.CutPrefix(p.expression, "item."); ok {
			fields = append(fields, field)
		}
	}
	return fields
}

// Replace replaces each expression for which value returns true. It keeps all others,
// and each $${{. value gets what is between ${{ and }}, without the space around it.
// whole reports that the text is one replaced expression and nothing else.
func Replace(text string, value func(expression string) (string, bool)) (out string, whole bool) {
	var b strings.Builder
	for first := true; ; first = false {
		before, rest, found := strings.Cut(text, opening)
		inside, after, ended := strings.Cut(rest, closing)
		if !found || !ended {
			b.WriteString(text)
			return b.String(), false
		}
		b.WriteString(before)
		insert, known := "", false
		if !strings.HasSuffix(before, "$") {
			insert, known = value(strings.TrimSpace(inside))
		}
		if !known {
			b.WriteString(opening)
			text = rest
			continue
		}
		b.WriteString(insert)
		if text = after; first && before == "" && after == "" {
			return b.String(), true
		}
	}
}

// Expand replaces the expressions of a template, which is JSON if isJSON is
// set. Errors are [*UnknownError], also for an expression about an item or a run that the
// scope does not have, and [*FieldError].
func Expand(text string, scope Scope, isJSON bool) (string, error) {
	if !strings.Contains(text, opening) {
		return text, nil
	}
	parts, err := split(text, isJSON)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
		if p.expression == "" {
			break
		}
		encoded, err := scope.value(p.expression)
		if err != nil {
			return "", err
		}
		switch {
		case p.whole:
			b.Write(encoded)
		case isJSON:
			b.WriteString(insideJSON(textOf(encoded)))
		default:
			b.WriteString(textOf(encoded))
		}
	}
	return b.String(), nil
}

// insideJSON returns a text escaped for use between quotes in JSON.
func insideJSON(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // can't fail for a string and a buffer
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// value returns the JSON value of an expression.
func (s Scope) value(expression string) ([]byte, error) {
	switch {
	case s.Item != nil && ofItem(expression):
		return s.Item.value(expression)
	case s.Run != nil && ofRun(expression):
		text, _ := s.Run.value(expression)
		return []byte(strconv.Quote(text)), nil // dates and times are quoted in JSON as in Go
	}
	return nil, &UnknownError{Text: opening + " " + expression + " " + closing}
}

// value returns the JSON value of an expression about an item.
func (it Item) value(expression string) ([]byte, error) {
	if expression == "index" || it.JSON == nil && expression == "item" {
		return strconv.AppendUint(nil, uint64(it.Index), 10), nil
	}
	if expression == "item" {
		return it.JSON, nil
	}
	field := strings.TrimPrefix(expression, "item.")
	var fields map[string]json.RawMessage
	if it.JSON == nil || json.Unmarshal(it.JSON, &fields) != nil || fields[field] == nil {
		return nil, &FieldError{Field: field, Index: it.Index}
	}
	return fields[field], nil
}

// Has reports whether an item has a field.
func (it Item) Has(field string) bool {
	_, err := it.value("item." + field)
	return err == nil
}
