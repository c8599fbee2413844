package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newTokenList(a *app) *cobra.Command {
	var opts client.ListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List who has access",
		Long: `List the identities of people, programs, workers and coordinators, and when each was last
used, as far as the coordinator that answers knows. While a token is rotated, both secrets
are listed. A coordinator that did not join by a join string, such as the first one, has a
certificate and no ID: dtaskctl cluster remove ends its access.`,
		Example: "  dtaskctl token list\n  dtaskctl token list --all -o json",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			all, err := collect(c.Tokens(ctx, opts))
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewTokens(all), text: func(p *show.Printer) { p.Tokens(all) }}, nil
		}),
	}
	cmd.Flags().BoolVar(&opts.All, "all", false, "also revoked and expired ones")
	return cmd
}
