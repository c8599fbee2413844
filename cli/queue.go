package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newQueue(a *app) *cobra.Command {
	return newNoun("queue", "Share the cluster between queues of tasks", `  dtaskctl queue set etl --weight 3 --max-running 200
  dtaskctl queue list
  dtaskctl queue show etl
  dtaskctl queue pause etl --reason "new disk"
  dtaskctl update 42 --queue etl`,
		newQueueSet(a), newQueueList(a), newQueueShow(a), newQueuePause(a), newQueueResume(a), newQueueDelete(a))
}

// onQueue runs a command about the queue that its argument names.
func (a *app) onQueue(do func(ctx context.Context, c *client.Client, name string) (view, error)) func(*cobra.Command, []string) error {
	return a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		v, err := do(ctx, c, args[0])
		switch {
		case errors.Is(err, client.ErrNotFound):
			err = withHint(err, "dtaskctl queue list shows the queues")
		case errors.Is(err, client.ErrConflict) && strings.Contains(err.Error(), " is named by "):
			err = withHint(err, "dtaskctl update JOB --queue NAME moves a job; dtaskctl schedule show NAME shows a schedule")
		case errors.Is(err, client.ErrConflict):
			err = withHint(err, "dtaskctl queue show NAME shows its version")
		}
		return v, err
	})
}

// changedQueue is the view of a queue that was paused or resumed.
func changedQueue(q *dtaskv1.Queue, already bool, verb, detail string) view {
	line := fmt.Sprintf("queue %s %s%s", show.Clean(q.GetName()), verb, detail)
	if already {
		line = fmt.Sprintf("queue %s is %s already", show.Clean(q.GetName()), document.QueueState(q))
	}
	return lines(document.PausedQueue{Queue: document.NewQueue(q), Already: already}, line)
}

func newQueueList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List queues with what waits and runs in them",
		Long: `List queues with their weights, the tasks that wait and run, for how long the oldest has
waited, and the waits of the last tasks. The leader counts them: with --stale, they may
be missing.

` + staleHelp,
		Example: `  dtaskctl queue list
  dtaskctl queue list -o json
  dtaskctl queue list -q`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			all, err := c.Queues(ctx, a.readOptions())
			if err != nil {
				return view{}, err
			}
			if a.quiet {
				var names []string
				for _, q := range all {
					names = append(names, q.GetName())
				}
				return view{}, a.printIDs(names)
			}
			return view{doc: document.NewQueues(all), text: func(p *show.Printer) { p.Queues(all) }}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print names only")
	return cmd
}

func newQueueShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show the settings and the load of a queue",
		Long: `Show the settings of a queue, and what waits and runs in it.

` + staleHelp,
		Example: `  dtaskctl queue show etl
  dtaskctl queue show default -o json`,
		Args: oneArg,
		RunE: a.onQueue(func(ctx context.Context, c *client.Client, name string) (view, error) {
			q, err := c.Queue(ctx, name, a.readOptions())
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewQueue(q), text: func(p *show.Printer) { p.Queue(q) }}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	return cmd
}
