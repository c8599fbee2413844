package cli

import (
	"slices"

	"github.com/dtask/dtask/client"
)

// A selection is some tasks of a job, or the whole job.
type selection struct {
	job   string
	tasks []string // empty = the whole job
}

// parseSelections groups references such as 42 and 42/fetch by job, in order of
// first appearance. A reference to a whole job includes all of its tasks.
func parseSelections(refs []string) ([]selection, error) {
	var selected []selection
	index, seen := make(map[string]int), make(map[string]bool)
	for _, ref := range refs {
		job, task, err := parseRef(ref)
		if err != nil {
			return nil, err
		}
		i, known := index[job]
		if !known {
			i = len(selected)
			index[job], selected = i, append(selected, selection{job: job})
		}
		switch {
		case task == "":
			seen[job], selected[i].tasks = true, nil
		case !seen[job] && !seen[ref]:
			seen[ref], selected[i].tasks = true, append(selected[i].tasks, task)
		}
	}
	return selected, nil
}

// countSelected returns the number of tasks that are selected by name.
func countSelected(selected []selection) int {
	n := 0
	for _, s := range selected {
		n += len(s.tasks)
	}
	return n
}

// splitSelections splits selections with more tasks than one call may name. The
// tasks must be independent of each other.
func splitSelections(selected []selection) []selection {
	var out []selection
	for _, s := range selected {
		for tasks := range slices.Chunk(s.tasks, client.MaxNamed) {
			out = append(out, selection{job: s.job, tasks: tasks})
		}
	}
	return out
}
