package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/nearest"
)

// didYouMean suggests a name, or lists all.
func didYouMean(s string, names []string) string {
	if n := nearest.Name(s, slices.Values(names)); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return "use " + oneOf(names)
}

// oneOf formats a choice: a, b or c.
func oneOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
