package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dtask/dtask/client"
)

// A selection is some tasks of a job, or the whole job.
type selection struct {
	jobRef // without a task

	tasks []string // empty = the whole job
}

// selections resolves references and groups them by job.
func (a *app) selections(ctx context.Context, c *client.Client, args []string) ([]selection, error) {
	refs := make([]jobRef, 0, len(args))
	for _, arg := range args {
		r, err := a.ref(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return groupRefs(refs), nil
}

// groupRefs groups references such as 42 and 42/fetch by job, in order of first
// appearance. A reference to a whole job includes all of its tasks.
func groupRefs(refs []jobRef) []selection {
	var selected []selection
	index, seen := make(map[string]int), make(map[string]bool)
	for _, r := range refs {
		i, known := index[r.job]
		if !known {
			i = len(selected)
			index[r.job] = i
			selected = append(selected, selection{jobRef: jobRef{job: r.job, name: r.name}})
		}
		selected[i].name = cmp.Or(selected[i].name, r.name)
		switch ref := r.String(); {
		case r.task == "":
			seen[r.job], selected[i].tasks = true, nil
		case !seen[r.job] && !seen[ref]:
			seen[ref], selected[i].tasks = true, append(selected[i].tasks, r.task)
		}
	}
	return selected
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
			out = append(out, selection{jobRef: s.jobRef, tasks: tasks})
		}
	}
	return out
}

// each calls do for every selection, numbered from 0. A selection that is not found, or in the
// wrong state, doesn't stop the others: each returns the first such error and
// prints the others.
func (o *output) each(selected []selection, do func(n int, s selection) error) error {
	var first error
	for n, s := range selected {
		err := do(n, s)
		switch {
		case err == nil:
		case !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrConflict):
			return err
		case first == nil:
			first = err
		default:
			o.report(err.Error(), nil, "")
		}
	}
	return first
}
