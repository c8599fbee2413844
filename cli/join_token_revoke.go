package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newJoinTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Make a join string useless",
		Long: `Make a join string useless. Those who joined by it keep their access: dtaskctl token
revoke takes it away.`,
		Example: "  dtaskctl join-token revoke 3",
		Args:    oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseNumber(args[0], "join-token list")
			if err != nil {
				return err
			}
			return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
				got, err := c.RevokeJoinToken(ctx, id)
				if errors.Is(err, client.ErrNotFound) {
					err = withHint(err, "dtaskctl join-token list --all shows the IDs")
				}
				if err != nil {
					return view{}, err
				}
				text := "revoked join string %d"
				if got.GetAlready() {
					text = "join string %d was revoked before"
				}
				return lines(document.NewRevokedJoinToken(got), fmt.Sprintf(text, id)), nil
			})(cmd, args)
		},
	}
}
