package controlline_test

import (
	"strings"
	"testing"

	"github.com/dtask/dtask/internal/controlline"
)

func TestOnlyControlLinesAreRecognized(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"::progress 0.5":               true,
		"::progress 1 done\r\n":        true,
		"::checkpoint":                 true,
		"::checkpoint \t\r\n":          true,
		"::progress 2":                 false,
		"::progress":                   false,
		"::progress\t0.5":              false,
		"::checkpoints":                false,
		" ::checkpoint":                false,
		"x ::progress 0.5":             false,
		"":                             false,
		"\n":                           false,
		"::":                           false,
		"::error file=a.go,line=1::no": false,
		"::progress 0.5 " + strings.Repeat("x", 2*controlline.MaxLine) + "\n": true,
	} {
		if got := controlline.Is([]byte(line)); got != want {
			t.Errorf("%.40q: got %t, want %t", line, got, want)
		}
	}
}

func TestEveryBeginningOfAControlLineMayBeginOne(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"::progress 0.5 text\n", "::checkpoint  \r\n"} {
		for n := range len(line) + 1 {
			if !controlline.MayBegin([]byte(line[:n])) {
				t.Errorf("%q: got false", line[:n])
			}
		}
	}
	for _, begin := range []string{"x", ":x", "::x", "::progress\n", "::checkpo\n", "\n"} {
		if controlline.MayBegin([]byte(begin)) {
			t.Errorf("%q: got true", begin)
		}
	}
}
