// Package nearest finds the name that a user probably meant, for messages about unknown
// names. It compares by edits of single characters, without regard to case.
package nearest

import (
	"strings"
	"unicode/utf8"
)

// Name returns the name that s was probably meant to be: the one with the
// fewest edits, and the first of equals. It is empty if no name is near.
func Name(s string, names func(yield func(string) bool)) string {
	limit := min(3, max(1, utf8.RuneCountInString(s)/3))
	if len(s) == 1 {
		limit = 0 // apart from case, any two letters are equally far apart
	}
	return Within(s, limit, names)
}

// Within is Name with a maximum number of edits.
func Within(s string, limit int, names func(yield func(string) bool)) string {
	want := []rune(strings.ToLower(s))
	best := ""
	for name := range names {
		if diff := utf8.RuneCountInString(name) - len(want); diff > limit || -diff > limit {
			continue
		}
		if d := distance(want, []rune(strings.ToLower(name)), limit); d <= limit {
			best, limit = name, d-1
		}
		if limit < 0 {
			break
		}
	}
	return best
}

// distance returns the number of single-character edits (insert, remove,
// replace, transpose) between a and b, or limit+1 if it exceeds limit.
func distance(a, b []rune, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		lowest := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			lowest = min(lowest, row[j])
		}
		if lowest > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit+1)
}
