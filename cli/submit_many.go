package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// manySubmitted is what `submit` prints of several jobs.
type manySubmitted struct {
	Jobs []oneOfMany `json:"jobs"`
}

// oneOfMany is what became of one of them.
type oneOfMany struct {
	submitted

	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // it was not stored
}

// manyPlanned is what `submit --dry-run` prints of several jobs.
type manyPlanned struct {
	Jobs []planned `json:"jobs"`
}

// planAll shows jobs that are not submitted.
func (a *app) planAll(jobs []*dtaskv1.JobSpec) error {
	if len(jobs) == 1 {
		return a.plan(jobs[0])
	}
	var doc manyPlanned
	for _, job := range jobs {
		doc.Jobs = append(doc.Jobs, planOf(job))
	}
	return a.print(doc, func(w io.Writer) error {
		for _, p := range doc.Jobs {
			if _, err := fmt.Fprintf(w, "%s: %s\n", p.Name, show.Levels(p.Levels)); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		return nil
	})
}

// submitMany stores several jobs and, with --wait, sees those that were stored to
// their ends. The error is that of the first that was not stored, or that did not
// complete.
func (a *app) submitMany(ctx context.Context, jobs []*dtaskv1.JobSpec, f submitFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	list := make([]client.Submission, len(jobs))
	for i, job := range jobs {
		list[i].Job = job
		if f.key != "" {
			list[i].Key = f.key + "-" + strconv.Itoa(i+1)
		}
	}
	results := c.SubmitMany(ctx, list)
	var first error
	for i, r := range results {
		if r.Err == nil {
			continue
		}
		first = firstOf(first, fmt.Errorf("%s: %w", show.Clean(jobs[i].GetHeader().GetName()), notStored(r.Err)))
	}
	if !f.wait || first != nil {
		return errors.Join(a.printMany(jobs, results), first)
	}
	ids, stored := make([]string, len(results)), make([]client.Submitted, len(results))
	for i, r := range results {
		ids[i], stored[i] = r.ID, r.Submitted
	}
	ctx, cancel := a.waiting(ctx)
	defer cancel()
	return a.waitForMany(ctx, c, ids, c.WaitSubmitted(ctx, stored))
}

func (a *app) printMany(jobs []*dtaskv1.JobSpec, results []client.SubmitResult) error {
	var (
		doc manySubmitted
		ids []string
	)
	for i, r := range results {
		one := oneOfMany{
			submitted: submitted{ID: r.ID, Existed: r.Existed, TasksTotal: tasksOf(jobs[i])},
			Name:      jobs[i].GetHeader().GetName(),
		}
		if r.Err != nil {
			one.Error = r.Err.Error()
		} else {
			ids = append(ids, r.ID)
		}
		doc.Jobs = append(doc.Jobs, one)
	}
	if a.quiet && a.people() {
		return a.ids(ids)
	}
	return a.print(doc, func(w io.Writer) error {
		for i, r := range results {
			line := fmt.Sprintf("job %s (%s) %s\n", r.ID, show.Clean(doc.Jobs[i].Name), verb(r.Submitted))
			if r.Err != nil {
				line = fmt.Sprintf("job (%s) was not stored: %s\n", show.Clean(doc.Jobs[i].Name), show.Clean(r.Err.Error()))
			}
			if _, err := io.WriteString(w, line); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		return nil
	})
}
