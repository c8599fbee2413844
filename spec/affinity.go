package spec

import (
	"fmt"
	"strings"
)

const maxAffinityKey = 128

// affinityProblem checks the key of tasks that run on the same worker.
func affinityProblem(key string) problem {
	switch n := len(key); {
	case n == 0:
		return problem{"is empty", "write a text that the tasks share, or leave it out"}
	case n > maxAffinityKey:
		return problem{fmt.Sprintf("has %d bytes", n), fmt.Sprintf("at most %d", maxAffinityKey)}
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' }):
		return problem{"has a control character", "write it on one line"}
	}
	if p := textProblem(key); p.bad() {
		return p
	}
	if p := plainText(key); p.bad() {
		return problem{p.what, "write the key itself, and a task for each key: each item would need a queue of its own"}
	}
	return problem{}
}
