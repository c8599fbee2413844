package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newResult(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "result JOB",
		Short: "Print the results of a job",
		Long: `Print the results of a job's terminal tasks, on which no other task depends. A single
result is printed as it is. The exit code is 0 if the job completed, 1 if it failed or
was cancelled, and 8 if it is still running.`,
		Example: `  dtaskctl result 42
  dtaskctl result 42 -o json`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			id, err := parseJobID(args[0])
			if err != nil {
				return view{}, err
			}
			got, err := c.Result(ctx, id)
			if err != nil {
				return view{}, err
			}
			v := view{doc: document.NewResults(got), text: func(p *show.Printer) { p.Results(got.GetResults(), isTerminal(a.out)) }}
			if client.Ended(got.GetJob().GetState()) {
				return v, jobError(got.GetJob())
			}
			if a.textOutput() {
				v = view{}
			}
			return v, &commandError{
				err:  fmt.Errorf("job %s is still running", id),
				code: exitWaitTimeout, hint: "to wait for it, run dtaskctl wait " + id,
			}
		}),
	}
}
