package main

import (
	"fmt"
	"os"
	"strings"
)

// The marks around the figures in a Markdown file.
const (
	figuresBegin = "<!-- figures: begin; made by make bench-docs -->"
	figuresEnd   = "<!-- figures: end -->"
)

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
	text, err := replace(string(old), t.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", into, err)
	}
	if err := os.WriteFile(into, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing document: %w", err)
	}
	return nil
}

func replace(text, figures string) (string, error) {
	before, rest, begins := strings.Cut(text, figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return "", fmt.Errorf("missing lines %q and %q", figuresBegin, figuresEnd)
	}
	return before + figuresBegin + "\n" + figures + figuresEnd + after, nil
}

// markdown formats the table, with a line about its origin.
func (t *table) markdown() string {
	var b strings.Builder
	m := t.Machine
	fmt.Fprintf(&b, "Measured %s on %d cores", t.Began.Format("2006-01-02"), m.Cores)
	for _, word := range []string{m.CPU, m.MemoryKB, m.System, m.Go} {
		if word != "" {
			fmt.Fprintf(&b, ", %s", word)
		}
	}
	b.WriteString(".")
	if t.Quick {
		b.WriteString(" A quick run: sizes are small, and spreads large.")
	}
	if m.Note != "" {
		fmt.Fprintf(&b, " %s", m.Note)
	}
	b.WriteString("\n")
	section := ""
	for _, r := range t.Rows {
		if r.Section != section {
			section = r.Section
			fmt.Fprintf(&b, "\n**%s**\n\n| what | median | min – max | unit | ratio | setting |\n|---|--:|--:|---|---|---|\n", section)
		}
		between := ""
		if low, high := r.spread(); low != "" {
			between = low + " – " + high
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", strings.TrimSpace(r.What), number(r.Median), between, r.Unit, t.ratio(r), r.Setting)
	}
	return b.String()
}
