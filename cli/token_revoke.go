package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Take an identity's access away",
		Long: `Take the access of a person, a program or a worker away, at once and for good. Open
streams end, and the attempts of a worker are requeued. The name may be given again. Your
own access and that of the last admin can be taken away, too: the sockets of the
coordinators remain. A coordinator is removed instead, with dtaskctl cluster remove.`,
		Example: "  dtaskctl token revoke 7",
		Args:    oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseNumber(args[0], "token list")
			if err != nil {
				return err
			}
			return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
				who, err := c.WhoAmI(ctx) // afterwards the cluster may not answer this caller
				if err != nil {
					return view{}, err
				}
				got, err := c.RevokeToken(ctx, id)
				if err != nil {
					return view{}, tokenError(err)
				}
				text := "revoked " + show.Caller(got.GetIdentity())
				if got.GetAlready() {
					text = show.Caller(got.GetIdentity()) + " was revoked before"
				}
				if who.GetId() == id {
					a.warn("this was your own access: dtaskctl login with another join string, or the socket of a coordinator, gives you access again")
				}
				if got.GetLastAdmin() {
					a.warn("no other token has the role admin: from now on, only the socket of a coordinator gives access, as root on its machine")
				}
				return lines(document.NewRevokedToken(got), text), nil
			})(cmd, args)
		},
	}
}
