package auth

import (
	"strings"
	"testing"
)

func TestTheNameOfAClusterHasLettersDigitsAndDashes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "prod", "EU-1", "0", "a--b", strings.Repeat("x", 63)} {
		if err := CheckClusterName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "a.b", "a_b", "a:b", "a/b", "a b", "ä", strings.Repeat("x", 64)} {
		if err := CheckClusterName(name); err == nil || !strings.Contains(err.Error(), "must be 1–63 letters, digits and -") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
