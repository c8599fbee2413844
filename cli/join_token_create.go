package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/document"
)

// joinCommands are what the user types on the machine that joins.
var joinCommands = map[auth.Purpose]string{
	auth.JoinCoordinator: "sudo dtaskd join STRING --advertise HOST:7460 --now", auth.JoinWorker: "dtask-worker --join STRING", auth.JoinUser: "dtaskctl login STRING",
}

func newJoinTokenCreate(a *app) *cobra.Command {
	var (
		opts    client.JoinTokenOptions
		purpose auth.Purpose
		role    = auth.Admin
		labels  pairs
		out     outFile
	)
	cmd := &cobra.Command{
		Use:   "create coordinator|worker|user",
		Short: "Create a join string",
		Long: `Create a join string, by which a machine or a person joins this cluster without anything
else being copied: it has the addresses, the key of the CA, and a secret. It is printed
once, alone on standard output. It works --uses times until --ttl has passed; the
identities that were made by it stay. A string in the image of an autoscaled group never
expires (--ttl 0), and needs --uses 0 if more than 1000 machines may join in its life:
limit it by --name, and revoke it with the image.`,
		Example: `  dtaskctl join-token create worker
  dtaskctl join-token create worker --namespace etl --label zone=secure --name 'etl-*' --ttl 0
  dtaskctl join-token create user --role submitter --namespace etl --out ana.join
  dtaskctl join-token create coordinator`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if err = oneArg(cmd, args); err == nil {
				purpose, err = auth.ParsePurpose(args[0])
			}
			return err
		},
		ValidArgs: []string{"coordinator", "worker", "user"},
	}
	fl := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		opts.Purpose, opts.Labels = purpose.String(), labels.values
		if purpose == auth.JoinUser {
			opts.Role = role.String()
		}
		if err := checkJoinToken(purpose, role, fl.Changed, &opts); err != nil {
			return err
		}
		if !fl.Changed("uses") {
			opts.Uses = purpose.DefaultUses()
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			if err := out.open(a); err != nil {
				return view{}, err
			}
			defer out.discard()
			text, made, err := c.CreateJoinToken(ctx, opts)
			if err != nil {
				return view{}, err
			}
			return view{}, a.deliver(&out, text, func(text string) any { return document.NewNewJoinToken(text, made) }, func() {
				a.note("join string %d for a %s, expires %s, %s; it is not shown again\nuse it with: %s", made.GetId(), purpose,
					show.Expiry(made.GetExpiresAt(), a.now()), usesText(made.GetUses()), joinCommands[purpose])
				if purpose == auth.JoinWorker && opts.TTL == 0 && !fl.Changed("uses") {
					a.note("it never expires, and stops working after %d workers have joined; for an image, --uses 0 sets no limit", made.GetUses())
				}
			}, fmt.Sprintf("dtaskctl join-token revoke %d, and create another one", made.GetId()))
		})(cmd, args)
	}
	bind(fl, &role, "role", "admin", "`ROLE` of the user: admin, operator, submitter, reader or metrics", parseTokenRole)
	bindNamespaces(fl, &opts.Namespaces, "a worker, submitter or reader")
	bind(fl, &opts.NamePattern, "name", "", "`PATTERN` of the names that may join, such as build-* (default: any)", parseNamePattern)
	fl.Var(&labels, "label", "label `NAME=VALUE` granted to the workers that join (repeatable)")
	bind(fl, &opts.TTL, "ttl", "1h", "`DURATION` for which the string works (0 = unlimited; then --uses or --name is required)", duration(0, math.MaxInt64))
	bind(fl, &opts.Uses, "uses", "", "`N` uses (0 = unlimited; default: coordinator 2, user 1, worker 1000, also with --ttl 0)", integer[uint32](0, math.MaxInt32))
	out.bindSecret(fl, "join string")
	return cmd
}

// checkJoinToken checks options that depend on each other.
func checkJoinToken(purpose auth.Purpose, role auth.Role, changed func(flag string) bool, opts *client.JoinTokenOptions) error {
	// One use or two bound a string, the many of a fleet don't.
	bounded := opts.Uses > 0 || opts.NamePattern != "" || purpose != auth.JoinWorker && !changed("uses")
	switch {
	case purpose != auth.JoinUser && changed("role"):
		return usagef("--role is for users: a %s has the rights of its kind", purpose)
	case purpose != auth.JoinWorker && len(opts.Labels) > 0:
		return usagef("--label is for workers: a %s has no labels", purpose)
	case len(opts.Namespaces) > 0 && (purpose == auth.JoinCoordinator || purpose == auth.JoinUser && !role.Scoped()):
		return usagef("--namespace is for workers, submitters and readers: others have all namespaces")
	case opts.TTL == 0 && !bounded:
		return usagef("--ttl 0 needs --uses or --name: otherwise the string would let anyone join forever")
	}
	return nil
}

// parseNamePattern checks a pattern of names: a name in which * stands for anything.
func parseNamePattern(text string) (string, error) {
	if !identityName.MatchString(strings.ReplaceAll(text, "*", "x")) {
		return "", errors.New("must be 1–63 letters, digits, dots, dashes and underscores, and * for anything")
	}
	return text, nil
}

func usesText(uses uint32) string {
	switch uses {
	case 0:
		return "any number of uses"
	case 1:
		return "1 use"
	}
	return fmt.Sprintf("%d uses", uses)
}
