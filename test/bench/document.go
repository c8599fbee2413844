package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// The marks around the figures in a Markdown file.
const (
	figuresBegin = "<!-- figures: begin; made by make bench-docs -->"
	figuresEnd   = "<!-- figures: end -->"
)

// missingBegin begins the line about the sections that a document has no figures of.
const missingBegin = "\nThis table has no figures of "

// document replaces the figures in a Markdown file by those of a JSON file.
func document(from, into string) error {
	t, err := loadTable(from)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(into)
	if err != nil {
		return fmt.Errorf("reading document: %w", err)
	}
	text, err := replace(string(old), t)
	if err != nil {
		return fmt.Errorf("%s: %w", into, err)
	}
	if err := os.WriteFile(into, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing document: %w", err)
	}
	return nil
}

// replace replaces the figures in a text. A table with some sections only replaces these,
// except the yardsticks, with which the sections that stay are compared.
func replace(text string, t *table) (string, error) {
	before, rest, begins := strings.Cut(text, figuresBegin)
	old, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return "", fmt.Errorf("missing lines %q and %q", figuresBegin, figuresEnd)
	}
	old, _, _ = strings.Cut(old, missingBegin)
	figures := t.origin() + t.sections("")
	if t.Partial {
		figures = t.merged(old)
	}
	return before + figuresBegin + "\n" + figures + missing(figures) + figuresEnd + after, nil
}

// missing returns a line about the sections of a run of all that the figures don't have, and
// how to measure one; nothing if they have all, or those of the section apart.
func missing(figures string) string {
	has := func(s section) bool { return strings.Contains(figures, "\n**"+s.name+"**\n") }
	var names []string
	for _, s := range sections {
		switch {
		case s.name == apart && has(s):
			return ""
		case s.name != apart && !has(s):
			names = append(names, s.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := wrapped(missingBegin[1:] + "the sections " + strings.Join(names, ", ") + ". `make bench ARGS='-only NAME'` measures one of them.")
	return "\n" + text
}

// maxColumns is how long a line of prose may be.
const maxColumns = 100

// wrapped breaks a paragraph into lines.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column > 0 && column+1+n > maxColumns:
			b.WriteByte('\n')
			column = 0
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
	return b.String()
}

// merged returns the old figures with the sections of the table in their places. Each has a
// line about its own origin. One that failed stays as it was.
func (t *table) merged(old string) string {
	const heading = "\n**"
	head, rest, _ := strings.Cut(strings.TrimPrefix(old, "\n"), heading)
	texts := make(map[string]string)
	for part := range strings.SplitSeq(rest, heading) {
		if name, body, ok := strings.Cut(part, "**\n"); ok {
			texts[name] = heading + name + "**\n" + body
		}
	}
	for _, r := range t.Rows {
		if r.Section != yardstickSection && r.Section != t.Failed {
			texts[r.Section] = t.sections(r.Section)
		}
	}
	var merged strings.Builder
	merged.WriteString(head + texts[yardstickSection])
	for _, s := range sections {
		merged.WriteString(texts[s.name])
	}
	return merged.String()
}

// origin is a line about where, when and how the table was measured.
func (t *table) origin() string {
	var b strings.Builder
	m := t.Machine
	fmt.Fprintf(&b, "Measured %s on %d cores", t.Began.Format("2006-01-02"), m.Cores)
	for _, word := range []string{m.CPU, m.MemoryKB, m.System, m.Go} {
		if word != "" {
			fmt.Fprintf(&b, ", %s", word)
		}
	}
	if t.Partial && t.Args != "" {
		fmt.Fprintf(&b, ", `make bench ARGS='%s'`", t.Args)
	}
	b.WriteString(".")
	if t.Quick {
		b.WriteString(" A quick run: sizes are small, and spreads large.")
	}
	if m.Note != "" {
		fmt.Fprintf(&b, " %s", m.Note)
	}
	return wrapped(b.String())
}

// sections formats the sections of the table, or one of them with a line about its origin.
func (t *table) sections(only string) string {
	var b strings.Builder
	section := ""
	for _, r := range t.Rows {
		if only != "" && r.Section != only {
			continue
		}
		if r.Section != section {
			section = r.Section
			fmt.Fprintf(&b, "\n**%s**\n\n", section)
			if only != "" {
				b.WriteString(t.origin() + "\n")
			}
			b.WriteString("| what | median | min – max | unit | ratio | setting |\n|---|--:|--:|---|---|---|\n")
		}
		between := ""
		if low, high := r.spread(); low != "" {
			between = low + " – " + high
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", strings.TrimSpace(r.What), number(r.Median), between, r.Unit, t.ratio(r), r.Setting)
	}
	return b.String()
}
