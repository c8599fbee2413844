package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newDLQPurge(a *app) *cobra.Command {
	return a.changeDeadLetters(&cobra.Command{
		Use:   "purge JOB/TASK...",
		Short: "Remove dead letters; their tasks stay failed",
		Example: `  dtaskctl dlq purge 42/fetch
  dtaskctl dlq purge --job 42
  dtaskctl dlq purge --job @etl
  dtaskctl dlq purge --type prime --dry-run
  dtaskctl dlq purge --all --yes`,
	}, deadLetterChange{
		verb: "purge",
		apply: func(ctx context.Context, c *client.Client, s selection, ifVersion uint64, key string) (int, string, error) {
			purged, err := c.PurgeDeadLetters(ctx, &dtaskv1.PurgeDeadLettersRequest{
				Job: s.job, Tasks: s.tasks, IfVersion: ifVersion, IdempotencyKey: key,
			})
			return purged.Tasks, "", err
		},
		doc: func(n int, dryRun bool) any { return document.Purge{Purged: n, DryRun: dryRun} },
	})
}
