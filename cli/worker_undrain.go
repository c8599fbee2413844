package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

func newWorkerUndrain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "undrain NAME",
		Aliases: []string{"resume"},
		Short:   "Resume assigning work to a worker",
		Example: "  dtaskctl worker undrain w1",
		Args:    oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			w, already, err := c.UndrainWorker(ctx, args[0])
			if err != nil {
				return view{}, workerError(err)
			}
			if already {
				a.note("worker %s was not draining", show.Clean(args[0]))
			}
			return workerView(w), nil
		}),
	}
}
