package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newJoinTokenList(a *app) *cobra.Command {
	var opts client.ListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List join strings, without their secrets",
		Long: `List the join strings that were made, without their secrets. Those that never expire are
red.`,
		Example: "  dtaskctl join-token list\n  dtaskctl join-token list --all -o json",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			all, err := collect(c.JoinTokens(ctx, opts))
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewJoinTokens(all), text: func(p *show.Printer) { p.JoinTokens(all) }}, nil
		}),
	}
	cmd.Flags().BoolVar(&opts.All, "all", false, "also revoked, expired and used ones")
	return cmd
}
