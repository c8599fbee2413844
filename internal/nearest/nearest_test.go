package nearest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

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
		if got := Name(s, names); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}
