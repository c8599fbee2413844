package show

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// harmless reports whether a terminal shows s as it is.
func harmless(s string, allowed string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune(allowed, r) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	})
}

// FuzzClean lets no text from outside steer a terminal, in lines, texts and tables.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred\x1b[0m", "\x1b]8;;http://x\x1b\\link", "a\x1b\x1b[2J", "csi\u009b31m", "\u202etxt.exe", "\xff\xfe", "\x1bPq\x1b\\", "a\r\nb\tc"} {
		f.Add(s, "STATE")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		if got := Clean(s); !harmless(got, "") || Clean(got) != got {
			t.Errorf("Clean(%q) gives %q", s, got)
		}
		if got := CleanText(s); !harmless(got, "\n\t") {
			t.Errorf("CleanText(%q) gives %q", s, got)
		}
		table := NewTable(false, "NAME", "STATE")
		table.Row(s, other)
		table.Row(other, s)
		var out bytes.Buffer
		if err := table.Write(&out); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !harmless(text, "\n") || strings.Count(text, "\n") != 3 {
			t.Errorf("a table with %q and %q is %q", s, other, text)
		}
	})
}
