package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newDLQShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show JOB/TASK",
		Short: "Show the payload and the attempts of a dead letter",
		Long:  "Show the payload and the attempts of a dead letter.\n\n" + staleHelp,
		Example: `  dtaskctl dlq show 42/fetch
  dtaskctl dlq show 42/fetch -o json
  dtaskctl dlq show @last/fetch`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			r, err := a.taskRef(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			letters, err := a.deadLetters(ctx, c,
				client.DeadLetterFilter{Job: r.job, Task: r.task, History: true})
			if err != nil {
				return view{}, err
			}
			if len(letters) == 0 {
				return view{}, withHint(notFound("task %s is not a dead letter", r),
					"dtaskctl status %s shows its state; dtaskctl dlq list shows the dead letters", r)
			}
			return view{
				doc:  document.NewDeadLetterWithHistory(letters[0]),
				text: func(p *show.Printer) { p.DeadLetter(letters[0]) },
			}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	return cmd
}
