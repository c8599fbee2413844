package cli

import (
	"context"
	"errors"
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
		out     = outFile{replace: true}
	)
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Make another token of an identity",
		Long: `Make another token of an identity, which keeps its ID, name, role and jobs. It is printed
once, alone on standard output. The old token works until the overlap has passed;
dtaskctl token list shows when each was last used.

If the identity is your own, the context that is in use gets the new token, too.`,
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
			context, own, err := a.ownContext(id)
			if err == nil {
				err = own.open(a)
			}
			if err != nil {
				return view{}, err
			}
			defer own.discard()
			token, who, err := c.RotateToken(ctx, id, ttl, overlap)
			if err != nil {
				return view{}, tokenError(err)
			}
			err = a.deliver(&out, token, func(text string) any { return document.NewNewToken(text, who) }, func() {
				old := "works no longer"
				if overlap > 0 {
					old = "works for another " + show.Duration(overlap)
				}
				a.note("another token of %s, ID %d, expires %s; the old one %s", show.Caller(who), id, show.Expiry(who.GetExpiresAt(), a.now()), old)
			}, fmt.Sprintf("dtaskctl token rotate %d again", id))
			return view{}, errors.Join(err, a.keepOwnToken(context, &own, token))
		})(cmd, args)
	}
	bind(fl, &overlap, "overlap", "24h", "`DURATION` for which the old token still works", duration(0, maxTTL))
	life.bind(fl)
	out.bindSecret(fl, "token")
	return cmd
}

// ownContext returns the context whose token the call has, and the file of that token, if the
// context belongs to an identity; both are empty otherwise.
func (a *app) ownContext(id uint64) (name string, file outFile, err error) {
	saved, all, err := a.savedContext()
	if err != nil || saved == nil || saved.ID != id {
		return "", outFile{}, err
	}
	path := all.tokenPath(saved)
	if _, used := a.tokenSource(all, saved); path == "" || used != path {
		return "", outFile{}, nil
	}
	return saved.Name, outFile{path: path, what: "the token of context " + saved.Name, replace: true}, nil
}

// keepOwnToken gives a context the new token of its identity; without a name it does
// nothing.
func (a *app) keepOwnToken(name string, file *outFile, token client.Secret) error {
	if name == "" {
		return nil
	}
	if err := file.keepSecret(token); err != nil {
		return withHint(fmt.Errorf("the context %s has the old token: %w", name, err), "write the new token to %s before the old one expires", file.path)
	}
	a.note("context %s has the new token, too", name)
	return nil
}
