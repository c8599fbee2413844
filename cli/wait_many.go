package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// jobIDs reads ids of jobs and leaves out repeats.
func jobIDs(args []string) ([]string, error) {
	var ids []string
	seen := make(map[string]bool)
	for _, arg := range args {
		id, err := jobID(arg)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// waitForMany sees several jobs to their ends, prints how each went, in their order,
// and returns the error of the first that did not complete, or is not known.
func (a *app) waitForMany(ctx context.Context, c *client.Client, ids []string, all iter.Seq2[client.Ends, error]) error {
	ended, err := a.followMany(ids, all)
	if err != nil {
		if errors.Is(err, errWaited) || ctx.Err() != nil {
			return &hintedError{err: err, hint: "the jobs go on: dtaskctl wait " + strings.Join(ids[:min(len(ids), 10)], " ")}
		}
		return err
	}
	var first error
	var jobs []*dtaskv1.Job
	for _, id := range ids {
		job := ended[id]
		if job == nil {
			first = firstOf(first, &client.Error{Kind: client.ErrNotFound, Message: "job " + id + ": there is no such job, or it is not kept any more"})
			continue
		}
		jobs = append(jobs, job)
		first = firstOf(first, verdict(job))
	}
	summary := a.err
	if a.people() {
		summary = a.out
	}
	if !a.quiet {
		for _, job := range jobs {
			if err := a.summarizeOne(ctx, c, summary, job); err != nil {
				return err
			}
		}
	}
	if a.people() {
		return first
	}
	return firstOf(a.print(document.NewJobs(jobs, false), nil), first)
}

// summarizeOne tells how one of many jobs went: in a line, if all went well.
func (a *app) summarizeOne(ctx context.Context, c *client.Client, w io.Writer, job *dtaskv1.Job) error {
	if verdict(job) != nil {
		return a.summarize(ctx, c, w, job)
	}
	if _, err := fmt.Fprintln(w, howEnded(job)); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// followMany shows the progress of jobs until all have ended. Those that are not
// known are not among them.
func (a *app) followMany(ids []string, all iter.Seq2[client.Ends, error]) (map[string]*dtaskv1.Job, error) {
	p := a.newProgress(show.Plural(len(ids), "job"))
	defer p.end()
	ended := make(map[string]*dtaskv1.Job, len(ids))
	for ends, err := range all {
		if err != nil {
			return nil, err
		}
		for _, job := range ends.Jobs {
			ended[job.GetId()] = job
		}
		now := step{done: int64(len(ids) - ends.Left), total: int64(len(ids))}
		if ends.Completed > 0 {
			now.detail = show.Plural(ends.Completed, "task") + " of the others completed"
		}
		p.update(now)
	}
	return ended, nil
}
