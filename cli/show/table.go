package show

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// columnGap is the number of spaces between columns.
const columnGap = 2

// A Table aligns cells in columns. The column STATE is colored.
type Table struct {
	rows [][]string
}

// NewTable returns a table with headings and no rows.
func NewTable(headings ...string) *Table { return &Table{rows: [][]string{headings}} }

// Row adds a row. It cleans untrusted text; an empty cell shows as a dash.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = Clean(c); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Continue adds a row that continues the one above it: empty cells stay empty.
func (t *Table) Continue(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Clean(c)
	}
	t.rows = append(t.rows, row)
}

// Table adds a table. Widths exclude colors, which text/tabwriter would count.
func (p *Printer) Table(t *Table) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	state := slices.Index(t.rows[0], "STATE")
	for r, row := range t.rows {
		for i, c := range row {
			padding := widths[i] - utf8.RuneCountInString(c) + columnGap
			if i == state && r > 0 {
				c = p.state(c)
			}
			p.buf.WriteString(c)
			if i < len(row)-1 {
				p.buf.WriteString(strings.Repeat(" ", padding))
			}
		}
		p.buf.WriteByte('\n')
	}
}
