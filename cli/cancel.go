package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// cancelled is what `cancel` prints.
type cancelled struct {
	ID      string `json:"id"` // as given: 42 or 42/fetch
	Already bool   `json:"already"`
}

func newCancel(a *app) *cobra.Command {
	var reason string
	var now bool
	cmd := &cobra.Command{
		Use:   "cancel JOB[/TASK]",
		Short: "Cancel a job, or one task of it; running commands are killed",
		Long: `Cancel a job, one task of it, or the tasks of an array (JOB/ARRAY) that have not
ended. Running commands are killed. The clean-up
tasks of a job (finally: true) still run; the job is cancelled once they have
ended. --now ends them as well. Cancelling twice is harmless.`,
		Example: `  dtaskctl cancel 42
  dtaskctl cancel 42 --now
  dtaskctl cancel 42/fetch --reason "wrong input"
  dtaskctl cancel '42/map[17]'`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, task, err := taskRef(args[0])
			if err != nil {
				return err
			}
			if now && task != "" {
				return &usageError{err: errors.New("--now is for a whole job: leave the task out"), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			cancel := func() (bool, error) { return c.Cancel(cmd.Context(), job, task, reason) }
			if now {
				cancel = func() (bool, error) { return c.CancelNow(cmd.Context(), job, reason) }
			}
			already, err := cancel()
			if err != nil {
				return err
			}
			return a.print(cancelled{ID: args[0], Already: already}, func(w io.Writer) error {
				noun, verb := "job", "cancelled"
				if task != "" {
					noun = "task"
				}
				if already {
					verb = "was cancelled before"
				}
				if _, err := fmt.Fprintf(w, "%s %s %s\n", noun, args[0], verb); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; shown in the status")
	cmd.Flags().BoolVar(&now, "now", false, "end the job's clean-up tasks as well")
	return cmd
}
