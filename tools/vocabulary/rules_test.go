package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEachFormIsFoundAndItsPlainEquivalentIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bad, good string }{
		{"there is none left", "none of them is left"},
		{"an error says so", "an error reports it"},
		{"the client is told", "the leader sends the client a redirect"},
		{`"5x" is no duration.`, "it is no longer needed."},
		{"whoever restores it", "a replica that restores it"},
		{"the timer starts anew", "a new timer starts"},
		{"the job goes on", "it goes on the queue"},
		{"the entry is on its way", "the entry is in flight"},
		{"the data folder", "the data directory"},
		{"the time-out of a task", "the timeout of a task"},
		{"tasks are handed back", "tasks are released"},
		{"no matter what he does", "no matter what they do"},
		{"its behaviour", "its behavior; otherwise likewise, and a promise to raise noise"},
		{"recognised", "recognized, initialization, supervised, exercise"},
	} {
		if got := findings(text{kind: comment, s: c.bad, marks: []mark{{0, 1}}}); len(got) != 1 {
			t.Errorf("%q: got %v, want one finding", c.bad, got)
		}
		if got := findings(text{kind: comment, s: c.good, marks: []mark{{0, 1}}}); len(got) != 0 {
			t.Errorf("%q: got %v, want no finding", c.good, got)
		}
	}
}

func TestAPhraseIsFoundAcrossALineBreakAndNotInCode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.md")
	const doc = "# Title\n\nThe job goes\non after `goes on`.\n\n```\nthe folder goes on\n```\n"
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, x := range texts {
		for _, f := range findings(x) {
			lines = append(lines, f.line)
		}
	}
	if len(lines) != 1 || lines[0] != 3 {
		t.Errorf("got findings in lines %v, want one in line 3", lines)
	}
}

func TestASampleIsTheSameForTheSameSeed(t *testing.T) {
	t.Parallel()
	var a, b corpus
	for _, c := range []*corpus{&a, &b} {
		if err := c.read("read.go"); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.comments) == 0 || len(a.comments) != len(b.comments) {
		t.Errorf("got %d and %d comments, want the same number above 0", len(a.comments), len(b.comments))
	}
}
