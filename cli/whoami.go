package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newWhoAmI(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are to the cluster",
		Long: `Show the identity, role and namespaces that the cluster sees, and how you have proved
them: by a token, by the socket of a coordinator, or not at all, because a cluster on
loopback without TLS is open to everyone on its machine.`,
		Example: "  dtaskctl whoami\n  dtaskctl whoami -o json",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			who, err := c.WhoAmI(ctx)
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewWhoAmI(who), text: func(p *show.Printer) { p.WhoAmI(who) }}, nil
		}),
	}
}
