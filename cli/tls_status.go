package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newTLSStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the CA, certificates and workers that lack the CA",
		Long: `Show the CAs that the cluster trusts, of which the first one issues certificates, the
certificate of each coordinator with its CA and its end, and the connected workers that
have not stored all CAs. A coordinator is current if it trusts these CAs and no others,
and the first one has issued its certificate.`,
		Example: "  dtaskctl tls status\n  dtaskctl tls status -o json",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			status, err := c.TLSStatus(ctx)
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewTLSStatus(status, a.now()), text: func(p *show.Printer) { p.TLSStatus(status) }}, nil
		}),
	}
}
