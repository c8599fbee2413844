package process

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTheLastLineIsTheResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want string
	}{
		"nothing":            {"", ""},
		"one line":           {"42\n", "42"},
		"no line end":        {"first\n42", "42"},
		"blank lines after":  {"42\n\n  \n", "42"},
		"progress after":     {"42\n::progress 1 done\n", "42"},
		"progress cut short": {"42\n::progress 1 done", "42"},
		"invalid progress":   {"::progress soon\n", "::progress soon"},
		"spaces are kept":    {"  a b \n", "  a b "},
		"line end of CRLF":   {"a\r\nb\r\n", "b"},
		"exactly the limit":  {strings.Repeat("x", MaxLine) + "\n", strings.Repeat("x", MaxLine)},
		"too long":           {strings.Repeat("x", MaxLine+1) + "\n", strings.Repeat("x", MaxLine)},
		"long, then short":   {strings.Repeat("x", 3*MaxLine) + "\nshort\n", "short"},
		"not UTF-8":          {"a\xffb\n", "a\uFFFDb"},
		"not UTF-8 and long": {strings.Repeat("\xffa", MaxLine/2), strings.Repeat("\uFFFDa", MaxLine/4)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLines(nil)
			if n, err := l.Write([]byte(c.in)); n != len(c.in) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
			if got := l.Finish(); got != c.want {
				t.Errorf("got %.80q, want %.80q", got, c.want)
			}
		})
	}
}

func TestProgressIsReported(t *testing.T) {
	t.Parallel()
	var got []Progress
	l := NewLines(func(p Progress) { got = append(got, p) })
	in := "::progress 0.42 half way\n::progress 1\nx ::progress 0.1 no\n::progress 1.5 no\n::progress -1\n::progress NaN\n" +
		"::progress 0   \xff text \r\n::progress\n::progress 0.9 last"
	for _, b := range []byte(in) { // however it is cut into chunks
		_, _ = l.Write([]byte{b})
	}
	l.Finish()
	want := []Progress{{Fraction: 0.42, Text: "half way"}, {Fraction: 1}, {Text: "\uFFFD text"}, {Fraction: 0.9, Text: "last"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestChunkBoundariesDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", "\n", "\r\n", " ", "::progress 0.5 x\n", "\xff", strings.Repeat("y", MaxLine-1), "ü",
		})).Draw(t, "pieces")
		chunked, whole := NewLines(nil), NewLines(nil)
		for _, piece := range pieces {
			_, _ = chunked.Write([]byte(piece))
		}
		_, _ = whole.Write([]byte(strings.Join(pieces, "")))
		a, b := chunked.Finish(), whole.Finish()
		if a != b || len(a) > MaxLine || !utf8.ValidString(a) {
			t.Fatalf("chunked %.80q, whole %.80q", a, b)
		}
	})
}

func TestACheckpointLineIsReportedAndIsNotAResult(t *testing.T) {
	t.Parallel()
	requests := 0
	l := NewLines(nil)
	l.OnCheckpoint = func() { requests++ }
	for _, part := range []string{"42\n::check", "point\n::checkpoint  \r\n", "::checkpoint"} {
		if _, err := l.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if last := l.Finish(); requests != 3 || last != "42" {
		t.Errorf("%d requests, want 3; the result is %q", requests, last)
	}
	plain := NewLines(nil)
	if _, err := plain.Write([]byte("::checkpoints\n::checkpoint\n")); err != nil {
		t.Fatal(err)
	}
	if last := plain.Finish(); last != "::checkpoint" {
		t.Errorf("without OnCheckpoint the last line is %q", last)
	}
}
