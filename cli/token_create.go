package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/document"
)

// identityName is the form of the name of an identity.
var identityName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

func parseIdentityName(text string) (string, error) {
	if !identityName.MatchString(text) {
		return "", errors.New("must be 1–63 letters, digits, dots, dashes and underscores")
	}
	return text, nil
}

func newTokenCreate(a *app) *cobra.Command {
	var (
		opts client.TokenOptions
		role auth.Role
		life lifetime
		out  outFile
	)
	cmd := &cobra.Command{
		Use:   "create --role ROLE --name NAME",
		Short: "Create a token for a person or a program",
		Long: `Create a token for a person or a program, and the identity that has it. The token is
printed once, alone on standard output: the cluster keeps only a hash of it.

Roles: admin may do everything; operator everything with the cluster and all jobs, but
gives nobody access; submitter submits and changes the jobs of its namespaces; reader
reads them; metrics reads metrics.`,
		Example: `  dtaskctl token create --role submitter --namespace etl --name ci --ttl 30d > ci.token
  dtaskctl token create --role reader --namespace etl,web --name board --out board.token
  dtaskctl token create --role metrics --name prometheus --never-expires`,
		Args: noArgs,
	}
	fl := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"role", "name"} {
			if !fl.Changed(name) {
				return usagef("missing --%s: %s", name, cmd.UseLine())
			}
		}
		var err error
		if opts.TTL, err = life.check(fl); err != nil {
			return err
		}
		if opts.Role = role.String(); !role.Scoped() && len(opts.Namespaces) > 0 {
			return usagef("--namespace is for the roles submitter and reader: the role %s has all namespaces", role)
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if err := out.open(a); err != nil {
				return view{}, err
			}
			defer out.discard()
			token, who, err := c.CreateToken(ctx, opts)
			if err != nil {
				return view{}, tokenError(err)
			}
			return view{}, a.deliver(&out, token, func(text string) any { return document.NewNewToken(text, who) }, func() {
				a.note("token of %s, ID %d, expires %s; it is not shown again", show.Caller(who), who.GetId(), show.Expiry(who.GetExpiresAt(), a.now()))
			}, fmt.Sprintf("dtaskctl token revoke %d, and create another one", who.GetId()))
		})(cmd, args)
	}
	bind(fl, &role, "role", "", "`ROLE`: admin, operator, submitter, reader or metrics", parseTokenRole)
	bind(fl, &opts.Name, "name", "", "`NAME` of the person or program: the owner of its jobs", parseIdentityName)
	bindNamespaces(fl, &opts.Namespaces, "a submitter or reader")
	life.bind(fl)
	out.bindSecret(fl, "token")
	return cmd
}

func parseTokenRole(text string) (auth.Role, error) {
	role, err := auth.ParseTokenRole(text)
	if err != nil {
		return role, errors.New("must be admin, operator, submitter, reader or metrics")
	}
	return role, nil
}
