package show

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes untrusted text safe for a terminal and fit for one line: it
// removes escape sequences and other control characters, and replaces line ends
// with spaces.
func Clean(s string) string {
	return strings.TrimSpace(clean(s, func(rune) bool { return false }))
}

// CleanText is Clean for text of several lines: it keeps tabs and line ends.
func CleanText(s string) string {
	return clean(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

func clean(s string, keep func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if n := escapeLen(s[i:]); n > 0 {
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

// escapeLen returns the length of the terminal escape sequence at the start of s,
// or 0.
func escapeLen(s string) int {
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
