package spec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationsAreExact(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "500ms": 500 * time.Millisecond,
		"1.5h": 90 * time.Minute, "0.1s": 100 * time.Millisecond, "1d0h1ms": 24*time.Hour + time.Millisecond, "3650d": MaxDuration, "0.125d": 3 * time.Hour,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "s", "1", "-1s", "1w", "1s1m", "1.s", ".5s", "1,5s", "1 s", "1e3s", "0.0005s", "3651d", "9999999999999999999999d", "1S"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
}

func TestSizesAreExact(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "512": 512, "1B": 1, "64MiB": 64 << 20, "1GB": 1e9, "1.5GiB": 3 << 29, "0.5KB": 500, "1024TiB": 1 << 50, "0.1KiB": -1, "1.25KiB": 1280,
	} {
		got, p := size(s)
		if want >= 0 && (p.bad() || got != want) || want < 0 && !p.bad() {
			t.Errorf("%q: got %d, %v, want %d", s, got, p, want)
		}
	}
}

func TestADurationThatGoWritesIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		want := time.Duration(rapid.Int64Range(0, MaxDuration.Milliseconds()).Draw(rt, "ms")) * time.Millisecond
		if got, err := ParseDuration(want.String()); err != nil || got != want {
			rt.Errorf("%v: got %v, %v", want, got, err)
		}
	})
}

// naiveDistance is the definition, without limit and without memory.
func naiveDistance(a, b []rune) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) + len(b)
	}
	n := min(naiveDistance(a[1:], b), naiveDistance(a, b[1:])) + 1
	cost := 1
	if a[0] == b[0] {
		cost = 0
	}
	n = min(n, naiveDistance(a[1:], b[1:])+cost)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		n = min(n, naiveDistance(a[2:], b[2:])+1)
	}
	return n
}

func TestDistanceIsThatOfItsNaiveTwin(t *testing.T) {
	t.Parallel()
	word := rapid.SliceOfN(rapid.RuneFrom([]rune("abc")), 0, 6)
	rapid.Check(t, func(rt *rapid.T) {
		a, b, limit := word.Draw(rt, "a"), word.Draw(rt, "b"), rapid.IntRange(0, 6).Draw(rt, "limit")
		if want, got := min(naiveDistance(a, b), limit+1), distance(a, b, limit); got != want {
			rt.Errorf("%q and %q within %d: got %d, want %d", string(a), string(b), limit, got, want)
		}
	})
}

func TestTheNearestNameIsSuggested(t *testing.T) {
	t.Parallel()
	names := slices.Values([]string{"command", "dependencies", "run", "retry", "a"})
	for s, want := range map[string]string{
		"comand": "command", "COMMAND": "command", "rnu": "run", "xyz": "", "b": "", "A": "a", "dependancys": "dependencies",
	} {
		if got := nearest(s, names); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
	if got := strings.Join([]string{count(-1234567), count(999), count(1000)}, " "); got != "-1,234,567 999 1,000" {
		t.Error(got)
	}
}
