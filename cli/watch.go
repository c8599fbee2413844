package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newWatch(a *app) *cobra.Command {
	var o client.WatchOptions
	cmd := &cobra.Command{
		Use:   "watch JOB",
		Short: "Print each change of a job and its tasks until it has ended",
		Long: `Print each change of a job and its tasks until it has ended, however it does:
the exit code is 0 then. Nothing is missed or told twice when a coordinator is
lost. Each line begins with an index; with --from INDEX, also in another process
and at another coordinator, one gets what came after it. Several changes in a
tenth of a second come as one. What runs is shown as assigned.

With -o json each line is a document: index, whole (true if tasks are all that
there are), the job, and the tasks that changed.`,
		Example: `  dtaskctl watch 42
  dtaskctl watch 42 --from 1207
  dtaskctl watch 42 -o json`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			ctx, cancel := a.waiting(cmd.Context())
			defer cancel()
			return a.watchChanges(ctx, c, id, o)
		},
	}
	cmd.Flags().Uint64Var(&o.From, "from", 0, "print what came after the change of this `INDEX`; 0 begins with the whole job")
	return cmd
}

func (a *app) watchChanges(ctx context.Context, c *client.Client, id string, o client.WatchOptions) error {
	last := o.From
	for ch, err := range c.Changes(ctx, id, o) {
		if err != nil {
			if ctx.Err() != nil && last > 0 {
				return &hintedError{err: err, hint: fmt.Sprintf("the job goes on: dtaskctl watch %s --from %d", id, last)}
			}
			return err
		}
		last = ch.Index
		if err := a.printChange(ch); err != nil {
			return err
		}
	}
	return nil
}

// printChange prints a change: to people the tasks that changed and then the
// job, to programs one document.
func (a *app) printChange(ch client.Change) error {
	switch a.output {
	case outputJSON:
		return show.WriteJSONLine(a.out, document.NewChange(ch.Index, ch.Whole, ch.Job, ch.Tasks))
	case outputYAML:
		if _, err := io.WriteString(a.out, "---\n"); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return show.WriteYAML(a.out, document.NewChange(ch.Index, ch.Whole, ch.Job, ch.Tasks))
	}
	var b strings.Builder
	paint, job := a.paint(a.out), ch.Job
	line := func(name, state, detail string) {
		text := fmt.Sprintf("%d  %s  %s  %s", ch.Index, show.Clean(name), paint.State(state), show.Clean(detail))
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	if !ch.Whole { // at the beginning the job alone tells how it stands
		for _, t := range ch.Tasks {
			detail := t.GetError()
			if w := t.GetWorker(); w != "" {
				detail = strings.TrimSuffix(fmt.Sprintf("attempt %d on %s: %s", t.GetAttempt(), w, t.GetError()), ": ")
			}
			line(job.GetId()+"/"+t.GetId(), document.TaskState(t.GetState()), detail)
		}
	}
	detail := fmt.Sprintf("%s of %s completed", show.Count(job.GetTasksCompleted()), show.Count(job.GetTasksTotal()))
	if n := job.GetTasksFailed(); n > 0 {
		detail += fmt.Sprintf(", %s failed", show.Count(n))
	}
	if why := job.GetError(); why != "" {
		detail += ": " + why
	}
	line(job.GetId(), document.JobState(job.GetState()), detail)
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
