package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newWorkerList(a *app) *cobra.Command {
	var f client.WorkerFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List workers, oldest first",
		Long: `List the workers that the cluster knows, oldest first. If there are more than --limit,
the last line shows how to continue, and JSON has "more": true.

` + staleHelp + `

A coordinator that does not lead counts the attempts of a worker as the log has them.`,
		Example: `  dtaskctl worker list
  dtaskctl worker list --name w1
  dtaskctl worker list --limit 1000 --after 1000
  dtaskctl worker list --limit 0 -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			f.Stale, f.Fresh = a.stale, a.noteFresh
			workers, more, err := listWorkers(ctx, c, f)
			if err != nil {
				return view{}, err
			}
			if a.quiet {
				ids := make([]string, 0, len(workers))
				for _, w := range workers {
					ids = append(ids, w.GetId())
				}
				return view{}, a.printIDs(ids)
			}
			return view{
				doc:  document.NewWorkers(workers, more),
				text: func(p *show.Printer) { p.Workers(workers, more) },
			}, nil
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Name, "name", "", "only the worker with this `NAME`")
	bind(fl, &f.After, "after", "", "only workers after this `ID`", func(text string) (string, error) {
		if _, err := strconv.ParseUint(text, 10, 32); err != nil {
			return "", errors.New("must be a worker ID such as 7")
		}
		return text, nil
	})
	bindLimit(fl, &f.Limit, "workers")
	a.bindStale(fl)
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print IDs only")
	return cmd
}
