package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// drainPoll is how often --wait looks.
const drainPoll = 250 * time.Millisecond

func newWorkerDrain(a *app) *cobra.Command {
	var (
		deadline time.Duration
		reason   string
		wait     bool
	)
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Give a worker nothing new and let what it runs end",
		Long: `Give a worker nothing new, from the moment this command returns until it is
undrained, also when its process or the leader changes meanwhile. What it has not
begun goes to other workers at once. What it runs may go on until the deadline; then
it is ended (SIGTERM, and SIGKILL after the task's kill_grace) and handed back: it
runs again elsewhere, from its last checkpoint, and burns no retry.

A task that may run at most once and has begun is ended at the deadline as well, and
is not repeated: it ends as the worker reports it, or as lost if it does not.

Draining a worker again replaces deadline and reason.`,
		Example: `  dtaskctl worker drain w1
  dtaskctl worker drain w1 --deadline 1h --reason "new disk" --wait
  dtaskctl worker drain w1 --deadline 0s`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if deadline < 0 {
				return &usageError{err: fmt.Errorf("--deadline %s is below zero", deadline), command: "dtaskctl worker drain"}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			w, err := c.DrainWorker(cmd.Context(), args[0], deadline, reason)
			if err != nil {
				return noWorker(err)
			}
			if wait {
				ctx, cancel := a.waiting(cmd.Context())
				defer cancel()
				if w, err = a.awaitDrained(ctx, c, w); err != nil {
					return err
				}
			}
			return a.printWorker(w)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&deadline, "deadline", 10*time.Minute, "how long what runs may go on; 0s = not at all")
	f.StringVar(&reason, "reason", "", "why; shown by worker list")
	f.BoolVar(&wait, "wait", false, "wait until the worker holds nothing; exit 8 if --timeout passes")
	return cmd
}

func newWorkerUndrain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "undrain NAME",
		Aliases: []string{"resume"},
		Short:   "Let a drained worker work again",
		Example: "  dtaskctl worker undrain w1",
		Args:    oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			w, already, err := c.UndrainWorker(cmd.Context(), args[0])
			if err != nil {
				return noWorker(err)
			}
			if already {
				a.say("worker %s did not drain", show.Clean(args[0]))
			}
			return a.printWorker(w)
		},
	}
}

// noWorker adds where to look for names.
func noWorker(err error) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	return &hintedError{err: err, hint: "dtaskctl worker list shows the workers"}
}

// awaitDrained waits until a worker holds nothing. One that is down holds
// nothing for long: what it had goes to others.
func (a *app) awaitDrained(ctx context.Context, c *client.Client, w *dtaskv1.Worker) (*dtaskv1.Worker, error) {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		switch {
		case w.GetState() == "drained" || w.GetState() == "down" && w.GetRunning() == 0:
			return w, nil
		case w.GetDrainUntil() == 0:
			return nil, &client.Error{Kind: client.ErrConflict, Message: fmt.Sprintf("worker %s does not drain any more", show.Clean(w.GetName()))}
		}
		select {
		case <-ctx.Done():
			return nil, &hintedError{err: context.Cause(ctx), hint: "the worker drains on: dtaskctl worker list shows how far it is"}
		case <-tick.C:
		}
		now, _, err := listWorkers(ctx, c, client.WorkerFilter{Name: w.GetName()})
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			return nil, err
		case len(now) == 0: // it is forgotten
			w = &dtaskv1.Worker{Name: w.GetName(), Id: w.GetId(), State: "down", DrainUntil: w.GetDrainUntil()}
		default:
			w = now[0]
		}
	}
}

// printWorker prints one worker.
func (a *app) printWorker(w *dtaskv1.Worker) error {
	return a.print(document.NewWorker(w), func(out io.Writer) error {
		return a.workerTable(out, []*dtaskv1.Worker{w})
	})
}
