package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
)

// maxTTL is the longest that a token works without --never-expires.
const maxTTL = 365 * 24 * time.Hour

func newToken(a *app) *cobra.Command {
	return newNoun("token", "Create, list, rotate and revoke tokens",
		"  dtaskctl token create --role submitter --namespace etl --name ci --out ci.token\n  dtaskctl token list",
		newTokenCreate(a), newTokenList(a), newTokenRotate(a), newTokenRevoke(a))
}

// lifetime is the flags that limit how long a secret works.
type lifetime struct {
	ttl   time.Duration
	never bool
}

func (l *lifetime) bind(fl *pflag.FlagSet) {
	bind(fl, &l.ttl, "ttl", "90d", "`DURATION` for which the token works, at most 365d", func(text string) (time.Duration, error) {
		d, err := duration(time.Minute, maxTTL)(text)
		if err != nil && d == 0 {
			return 0, errors.New("must be a duration from 1m to 365d, such as 90d; --never-expires is for longer")
		}
		return d, nil
	})
	fl.BoolVar(&l.never, "never-expires", false, "token that works until it is revoked")
}

// check returns the duration that the cluster gets: 0 = the token never expires.
func (l *lifetime) check(fl *pflag.FlagSet) (time.Duration, error) {
	if err := exclusive(fl, "ttl", "never-expires"); err != nil {
		return 0, usage(err)
	}
	if l.never {
		return 0, nil
	}
	return l.ttl, nil
}

// A namespaceList is a repeatable flag with comma-separated namespaces.
type namespaceList []string

func (l *namespaceList) String() string { return strings.Join(*l, ",") }
func (l *namespaceList) Type() string   { return "value" }

func (l *namespaceList) Set(text string) error {
	all := append(slices.Clip(*l), strings.Split(text, ",")...)
	if auth.CheckNamespaces(all) != nil {
		return errors.New("must be * alone, or names of lower-case letters, digits and dashes")
	}
	*l = all
	return nil
}

// bindNamespaces adds --namespace.
func bindNamespaces(fl *pflag.FlagSet, p *[]string, whose string) {
	fl.Var((*namespaceList)(p), "namespace", "`NAMESPACE` of "+whose+", comma-separated or repeated; * = all (default \"default\")")
}

// parseNumber parses the ID of an identity or a join string, which a list shows.
func parseNumber(text, list string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usagef("invalid ID %q: must be a number of dtaskctl %s", text, list)
	}
	return id, nil
}

// tokenError adds a hint to an error about an identity.
func tokenError(err error) error {
	switch {
	case errors.Is(err, client.ErrConflict):
		return withHint(err, "dtaskctl token list --all shows the names in use: choose another --name, or dtaskctl token rotate ID makes another token of an identity")
	case errors.Is(err, client.ErrNotFound):
		return withHint(err, "dtaskctl token list --all shows the IDs")
	}
	return err
}
