package show

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Table lines up cells in columns, two blanks apart. The column STATE is
// coloured if the table's Paint says so.
type Table struct {
	Paint Paint
	rows  [][]string
	state int // the column of states; -1 if there is none
}

// NewTable begins a table with its headings.
func NewTable(p Paint, headings ...string) *Table {
	t := &Table{Paint: p, rows: [][]string{headings}, state: -1}
	for i, h := range headings {
		if h == "STATE" {
			t.state = i
		}
	}
	return t
}

// Row adds a row. Text from outside is made harmless (see Clean), and an empty
// cell shows as a dash.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = Clean(c); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Write writes the table. Widths are counted before colours are added, which
// text/tabwriter would count as text.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b bytes.Buffer
	for r, row := range t.rows {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2)
			if i == t.state && r > 0 {
				c = t.Paint.State(c)
			}
			b.WriteString(c)
			if i < len(row)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// Paint colours words for a terminal, or leaves them as they are.
type Paint bool

// State colours a state; the word stays, so that colour is never all there is.
func (p Paint) State(s string) string {
	switch s {
	case "completed", "aggregated", "leader", "up":
		return p.in("32", s)
	case "running", "assigned":
		return p.in("36", s)
	case "failed", "dead", "lost", "unreachable", "down":
		return p.in("31", s)
	case "cancelled", "scheduled", "candidate", "draining", "drained":
		return p.in("33", s)
	}
	return s
}

// Bold makes a heading stand out.
func (p Paint) Bold(s string) string { return p.in("1", s) }

func (p Paint) in(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Clean makes text from outside harmless for a terminal and fit for one line:
// escape sequences and other control characters go, line ends become blanks.
func Clean(s string) string {
	return strings.TrimSpace(clean(s, func(rune) bool { return false }))
}

// CleanText is Clean for text of several lines: tabs and line ends stay.
func CleanText(s string) string {
	return clean(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

func clean(s string, keep func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if n := escape(s[i:]); n > 0 {
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case keep(r):
			b.WriteRune(r)
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escape is the length of the terminal escape sequence that s begins with; 0 if
// it begins with none.
func escape(s string) int {
	if len(s) < 2 || s[0] != 0x1b {
		return 0
	}
	switch s[1] {
	case '[': // ends with a byte from @ to ~
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X': // ends with BEL or ESC \
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	return 2
}
