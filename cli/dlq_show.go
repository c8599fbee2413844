package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newDLQShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show JOB/TASK",
		Short: "Show the payload and the attempts of a dead letter",
		Example: `  dtaskctl dlq show 42/fetch
  dtaskctl dlq show 42/fetch -o json`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			job, task, err := parseTaskRef(args[0])
			if err != nil {
				return view{}, err
			}
			letters, err := listDeadLetters(ctx, c,
				client.DeadLetterFilter{Job: job, Task: task, History: true})
			if err != nil {
				return view{}, err
			}
			if len(letters) == 0 {
				return view{}, withHint(notFound("task %s is not a dead letter", args[0]),
					"dtaskctl status %s shows its state; dtaskctl dlq list shows the dead letters", args[0])
			}
			return view{
				doc:  document.NewDeadLetterWithHistory(letters[0]),
				text: func(p *show.Printer) { p.DeadLetter(letters[0]) },
			}, nil
		}),
	}
}
