package cli

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newQueuePause(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Let no task of a queue start",
		Long: `Let no task of a queue start until it is resumed. Tasks that run continue, and jobs can be
submitted. Deadlines and queue timeouts keep counting.`,
		Example: `  dtaskctl queue pause etl
  dtaskctl queue pause etl --reason "new disk"`,
		Args: oneArg,
		RunE: a.onQueue(func(ctx context.Context, c *client.Client, name string) (view, error) {
			q, already, err := c.PauseQueue(ctx, name, reason)
			if err != nil {
				return view{}, err
			}
			return changedQueue(q, already, "paused", "; running tasks continue"), nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown by queue show")
	return cmd
}

func newQueueResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "resume NAME",
		Short:   "Let tasks of a paused queue start again",
		Example: `  dtaskctl queue resume etl`,
		Args:    oneArg,
		RunE: a.onQueue(func(ctx context.Context, c *client.Client, name string) (view, error) {
			q, already, err := c.ResumeQueue(ctx, name)
			if err != nil {
				return view{}, err
			}
			return changedQueue(q, already, "resumed", ""), nil
		}),
	}
}

// defaultQueue is the queue of jobs that name none.
const defaultQueue = "default"

func newQueueDelete(a *app) *cobra.Command {
	var version uint32
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a queue that no open job names",
		Long: `Delete a queue. The exit code is 5 while a job that has not ended, or a schedule, names it:
move the jobs with dtaskctl update JOB --queue NAME, or wait for their end. The queue
default returns to its initial settings.`,
		Example: "  dtaskctl queue delete etl\n  dtaskctl queue delete etl --if-version 3",
		Args:    oneArg,
		RunE: a.onQueue(func(ctx context.Context, c *client.Client, name string) (view, error) {
			if err := c.DeleteQueue(ctx, name, version); err != nil {
				return view{}, err
			}
			line := fmt.Sprintf("queue %s deleted", show.Clean(name))
			if name == defaultQueue { // it remains
				line = fmt.Sprintf("queue %s has its initial settings", name)
			}
			return lines(document.DeletedQueue{Name: name, Deleted: true}, line), nil
		}),
	}
	bind(cmd.Flags(), &version, "if-version", "", "delete only if the queue has this `VERSION`", integer[uint32](1, math.MaxUint32))
	return cmd
}
