package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newDLQRequeue(a *app) *cobra.Command {
	return a.changeDeadLetters(&cobra.Command{
		Use:   "requeue JOB/TASK...",
		Short: "Requeue dead letters; their jobs resume",
		Long: `Requeue dead letters. Their jobs resume, and tasks that were cancelled because of
them are rerun too. It is the same as dtaskctl retry for the selected tasks.`,
		Example: `  dtaskctl dlq requeue 42/fetch 42/count
  dtaskctl dlq requeue --job 42
  dtaskctl dlq requeue --job @etl
  dtaskctl dlq requeue --type prime
  dtaskctl dlq requeue --all --yes`,
	}, deadLetterChange{
		verb: "requeue",
		apply: func(ctx context.Context, c *client.Client, s selection, ifVersion uint64, key string) (int, string, error) {
			r := &dtaskv1.RetryRequest{Job: s.job, Tasks: s.tasks, IfVersion: ifVersion, IdempotencyKey: key}
			retried, err := c.Retry(ctx, r)
			return len(s.tasks), retried.Job.GetName(), err
		},
		doc: func(n int, dryRun bool) any { return document.Requeue{Requeued: n, DryRun: dryRun} },
	})
}
