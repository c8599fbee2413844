package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newExplain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain JOB[/TASK]",
		Short: "Show why a task waits, and what would start it",
		Long: `Show why a task is in its state: what it waits for, until when, what it has failed with,
or the first cause of a cancellation. For a task that waits for a worker, show what each
worker lacks, and every single change after which the task would get a free slot now, such
as a label, an amount of a resource or a drain that ends. Any one of them suffices. If
none is listed, no single change of these kinds would start it now. If enough tasks like
those that are before it have run, show when it is expected to start.

For a job, show the first 100 unfinished tasks, grouped by reason.

The leader answers. Workers that serve none of your namespaces are left out.`,
		Example: `  dtaskctl explain 42/fetch
  dtaskctl explain '@etl/map[17]'
  dtaskctl explain @last/train -o json
  dtaskctl explain 42`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			ref, err := a.ref(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			e, err := c.Explain(ctx, ref.job, ref.task)
			if err != nil {
				return view{}, err
			}
			if ref.task == "" {
				return view{doc: document.NewJobExplanation(e), text: func(p *show.Printer) { p.JobExplanation(e) }}, nil
			}
			return view{doc: document.NewExplanation(e), text: func(p *show.Printer) { p.Explanation(e) }}, nil
		}),
	}
}
