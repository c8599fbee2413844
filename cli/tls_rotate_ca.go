package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newTLSRotateCA(a *app) *cobra.Command {
	var finish, compromised bool
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Replace the CA of the cluster",
		Long: `Replace the CA of the cluster, in two steps. Without an option, the leader makes a new CA
and gives its key to the other coordinators, and all coordinators get certificates of it.
The old CA is still trusted. Workers that are connected store the new one and open another
session, one after another: 200 workers take 10 seconds, and 1,200 or more a minute.
Contexts of dtaskctl that are used store it, too. dtaskctl tls status shows who lacks it.
With --finish, the old CA is dropped. This is refused, with names, while a coordinator or a
connected worker lacks the new one. No task fails, and the leader stays.

With --compromised, the old CA is dropped as soon as the coordinators that run have
certificates of the new one. The command prints who must join or log in again.

The key of the CA must be on the coordinators, as after dtaskd init.`,
		Example: `  dtaskctl tls rotate-ca
  dtaskctl tls rotate-ca --finish
  dtaskctl tls rotate-ca --compromised`,
		Args: noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if finish && compromised {
			return usage(errors.New("--finish and --compromised are mutually exclusive"))
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.RotateCA(ctx, finish, compromised)
			if err != nil {
				return view{}, err
			}
			a.noteRotated(got.GetStatus().GetCas())
			return view{
				doc:  document.NewRotatedCA(got, a.now()),
				text: func(p *show.Printer) { p.RotatedCA(got, finish) },
			}, nil
		})(cmd, args)
	}
	fl := cmd.Flags()
	fl.BoolVar(&finish, "finish", false, "drop the old CA")
	fl.BoolVar(&compromised, "compromised", false, "drop the old CA at once; prints who must join again")
	return cmd
}
