package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
)

func newWorker(a *app) *cobra.Command {
	return newNoun("worker", "Look at the workers", "  dtaskctl worker list", newWorkerList(a))
}

func newWorkerList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the workers that the cluster knows",
		Example: `  dtaskctl worker list
  dtaskctl worker list -o json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			workers, err := c.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if a.quiet {
				ids := make([]string, 0, len(workers))
				for _, w := range workers {
					ids = append(ids, w.GetId())
				}
				return a.ids(ids)
			}
			return a.print(show.WorkersOf(workers), func(out io.Writer) error {
				t := show.NewTable(a.paint(out), "ID", "NAME", "STATE", "RUNNING", "SINCE", "LABELS")
				for _, w := range workers {
					since := w.GetUpSince()
					if w.GetState() == "down" {
						since = w.GetDownSince()
					}
					t.Row(w.GetId(), w.GetName(), w.GetState(), fmt.Sprintf("%d of %d", w.GetRunning(), w.GetSlots()),
						show.Ago(since, a.now()), show.Labels(w.GetLabels()))
				}
				return t.Write(out)
			})
		},
	}
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print ids only")
	return cmd
}
