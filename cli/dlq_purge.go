package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newDLQPurge(a *app) *cobra.Command {
	return a.changeDeadLetters(&cobra.Command{
		Use:   "purge JOB/TASK...",
		Short: "Remove dead letters; their tasks stay failed",
		Example: `  dtaskctl dlq purge 42/fetch
  dtaskctl dlq purge --job 42
  dtaskctl dlq purge --type prime
  dtaskctl dlq purge --all --yes`,
	}, deadLetterChange{
		verb: "purge",
		apply: func(ctx context.Context, c *client.Client, s selection) (int, error) {
			return c.PurgeDeadLetters(ctx, s.job, s.tasks)
		},
		doc: func(n int) any { return document.Purge{Purged: n} },
	})
}
