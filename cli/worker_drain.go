package cli

import (
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// drainPollInterval is how often --wait reads the worker.
const drainPollInterval = 250 * time.Millisecond

func newWorkerDrain(a *app) *cobra.Command {
	var (
		deadline time.Duration
		reason   string
		wait     bool
	)
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Stop assigning work to a worker",
		Long: `Stop assigning work to a worker until it is undrained, even if its process restarts or
the leader changes. Assigned tasks that have not started are reassigned immediately.
Running attempts may continue until the deadline. Then they are terminated (SIGTERM,
and SIGKILL after the task's kill_grace) and requeued without counting as a retry; they
resume elsewhere from their last checkpoint.

At-most-once tasks that have started are terminated at the deadline too, but not rerun:
they end as the worker reports them, or as lost if it reports nothing.

Draining a worker again replaces the deadline and the reason.`,
		Example: `  dtaskctl worker drain w1
  dtaskctl worker drain w1 --deadline 1h --reason "new disk" --wait
  dtaskctl worker drain w1 --deadline 0s`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			w, err := c.DrainWorker(ctx, args[0], deadline, reason)
			if err != nil {
				return view{}, workerError(err)
			}
			if wait {
				limited, cancel := a.waitContext(ctx)
				defer cancel()
				if w, err = awaitDrained(limited, c, w); err != nil {
					return view{}, err
				}
			}
			return workerView(w), nil
		}),
	}
	fl := cmd.Flags()
	bind(fl, &deadline, "deadline", "10m0s",
		"maximum `DURATION` of running attempts (0s = terminate them immediately)", duration(0, math.MaxInt64))
	fl.StringVar(&reason, "reason", "", "`TEXT` shown by worker list")
	fl.BoolVar(&wait, "wait", false, "wait until the worker is drained (exit code 8 after --timeout)")
	return cmd
}

// awaitDrained waits until a worker holds no attempts. The attempts of a worker
// that is down are reassigned.
func awaitDrained(ctx context.Context, c *client.Client, w *dtaskv1.Worker) (*dtaskv1.Worker, error) {
	tick := time.NewTicker(drainPollInterval)
	defer tick.Stop()
	for {
		switch {
		case w.GetState() == "drained" || w.GetState() == "down" && w.GetRunning() == 0:
			return w, nil
		case w.GetDrainUntil() == 0:
			return nil, &client.Error{
				Kind:    client.ErrConflict,
				Message: "worker " + show.Clean(w.GetName()) + " is no longer draining",
			}
		}
		select {
		case <-ctx.Done():
			return nil, withHint(context.Cause(ctx),
				"the worker is still draining: dtaskctl worker list shows its state")
		case <-tick.C:
		}
		workers, _, err := listWorkers(ctx, c, client.WorkerFilter{Name: w.GetName()})
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			return nil, err
		case len(workers) == 0: // the cluster has removed it
			w = &dtaskv1.Worker{
				Name: w.GetName(), Id: w.GetId(), State: "down",
				DrainUntil: w.GetDrainUntil(),
			}
		default:
			w = workers[0]
		}
	}
}
