package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newTokenRotate(a *app) *cobra.Command {
	var (
		overlap time.Duration
		life    lifetime
		out     = secretFile{replace: true}
	)
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Make another token of an identity",
		Long: `Make another token of an identity, which keeps its ID, name, role and jobs. It is printed
once, alone on standard output. The old token works until the overlap has passed;
dtaskctl token list shows when each was last used.`,
		Example: "  dtaskctl token rotate 7 --out ci.token\n  dtaskctl token rotate 7 --overlap 0s",
		Args:    oneArg,
	}
	fl := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseNumber(args[0], "token list")
		if err != nil {
			return err
		}
		ttl, err := life.check(fl)
		if err != nil {
			return err
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if err := out.open(a); err != nil {
				return view{}, err
			}
			defer out.discard()
			token, who, err := c.RotateToken(ctx, id, ttl, overlap)
			if err != nil {
				return view{}, tokenError(err)
			}
			return view{}, a.deliver(&out, token, func(text string) any { return document.NewNewToken(text, who) }, func() {
				old := "works no longer"
				if overlap > 0 {
					old = "works for another " + show.Duration(overlap)
				}
				a.note("another token of %s, ID %d, expires %s; the old one %s", show.Caller(who), id, show.Expiry(who.GetExpiresAt(), a.now()), old)
			}, fmt.Sprintf("dtaskctl token rotate %d again", id))
		})(cmd, args)
	}
	bind(fl, &overlap, "overlap", "24h", "`DURATION` for which the old token still works", duration(0, maxTTL))
	life.bind(fl)
	out.bind(fl, "token")
	return cmd
}
