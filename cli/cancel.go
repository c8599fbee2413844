package cli

import (
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
	cmd := &cobra.Command{
		Use:   "cancel JOB[/TASK]",
		Short: "Cancel a job, or one task of it; running commands are killed",
		Example: `  dtaskctl cancel 42
  dtaskctl cancel 42/fetch --reason "wrong input"`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, task, err := taskRef(args[0])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			already, err := c.Cancel(cmd.Context(), job, task, reason)
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
	return cmd
}
