package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newDLQList(a *app) *cobra.Command {
	var f client.DeadLetterFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, newest job first",
		Long:  "List dead letters, newest job first.\n\n" + staleHelp,
		Example: `  dtaskctl dlq list
  dtaskctl dlq list --job 42
  dtaskctl dlq list --job @last
  dtaskctl dlq list --type prime --limit 10 -o json
  dtaskctl dlq list -q --limit 0`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			letters, err := a.deadLetters(ctx, c, f)
			if err != nil {
				return view{}, err
			}
			doc := document.NewDeadLetters(letters)
			if a.quiet {
				var ids []string
				for _, l := range doc.DeadLetters {
					ids = append(ids, l.ID)
				}
				return view{}, a.printIDs(ids)
			}
			return view{doc: doc, text: func(p *show.Printer) { p.DeadLetters(letters) }}, nil
		}),
	}
	bindDeadLetterFilter(cmd.Flags(), &f)
	bindLimit(cmd.Flags(), &f.Limit, "dead letters")
	a.bindStale(cmd.Flags())
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print IDs (JOB/TASK) only")
	return cmd
}
