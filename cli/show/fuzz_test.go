package show

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// isSafe reports whether s has no control characters except the allowed ones.
func isSafe(s string, allowed string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune(allowed, r) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	})
}

// FuzzClean checks that untrusted text can't control the terminal, in lines,
// texts and tables.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred\x1b[0m", "\x1b]8;;http://x\x1b\\link", "a\x1b\x1b[2J", "csi\u009b31m", "\u202etxt.exe", "\xff\xfe", "\x1bPq\x1b\\", "a\r\nb\tc"} {
		f.Add(s, "STATE")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		if got := Clean(s); !isSafe(got, "") || Clean(got) != got {
			t.Errorf("Clean(%q) gives %q", s, got)
		}
		if got := CleanText(s); !isSafe(got, "\n\t") {
			t.Errorf("CleanText(%q) gives %q", s, got)
		}
		table := NewTable("NAME", "STATE")
		table.Row(s, other)
		table.Row(other, s)
		p := NewPrinter(false, time.Time{})
		p.Table(table)
		if text := string(p.Bytes()); !isSafe(text, "\n") || strings.Count(text, "\n") != 3 {
			t.Errorf("a table with %q and %q is %q", s, other, text)
		}
	})
}
