package ledger

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A command that is killed while it writes may have written a part of its line.
func TestAPartOfALineIsLeftOut(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	for _, l := range executed("a", 1, "w1", 10, 20) {
		if err := l.Append(&text); err != nil {
			t.Fatal(err)
		}
	}
	whole := text.String()
	for cut := 1; cut < 60; cut++ {
		path := filepath.Join(t.TempDir(), "ledger")
		if err := os.WriteFile(path, []byte(whole+whole[:cut]+whole+whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		lines, err := Read(path)
		if err != nil || len(lines) != 4 || !slices.EqualFunc(lines[:2], lines[2:], func(a, b Line) bool { return a.Kind == b.Kind && a.At == b.At }) {
			t.Errorf("after %d bytes of a line: %v, %v", cut, lines, err)
		}
	}
	path := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(path, []byte(whole+"damaged\n"+whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if lines, err := Read(path); err == nil {
		t.Errorf("a ledger with a damaged line has %d lines", len(lines))
	}
}
