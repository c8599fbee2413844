package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newLogin(a *app) *cobra.Command {
	var (
		name  string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "login STRING|-|@FILE",
		Short: "Log in to a cluster with a join string",
		Long: `Log in to a cluster with a join string for a user, which dtaskctl join-token create user
makes. dtaskctl first checks that a coordinator at an address of the string belongs to
that cluster: the CA of its certificate must have the key that the string has. Only then
does it send the secret of the string. It makes its own token, of which the cluster gets
a hash, and stores it with the addresses and the CA as a context, which is in use from
then on.

With -, the string is read from standard input, and with @FILE from a file, so that other
users of this machine don't see it in the list of processes. Repeating a login whose
outcome is unknown is safe.

The context has the name of the cluster, if it has one and no other context has that name,
else the start of its ID. A login to a cluster that has a context replaces that context,
unless --context names another one. On a terminal, dtaskctl asks before. The token of the
old context stays valid, and dtaskctl prints the command that revokes it.`,
		Example: `  dtaskctl login dtj1-…
  dtaskctl login @ana.join --context prod
  ssh m1 sudo dtaskctl join-token create user | dtaskctl login -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 { // whose text may be secret
				return fmt.Errorf("want one join string, - or @FILE, and got %d arguments: the string has no spaces", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.joinText(args[0])
			if err != nil {
				return usage(err)
			}
			return a.login(cmd.Context(), text, cmp.Or(name, defaultUser(a.getenv)), force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace the context of the cluster without asking")
	bind(cmd.Flags(), &name, "name", "", "`NAME` of the identity, the owner of your jobs (default: your user name)", parseIdentityName)
	return cmd
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// defaultUser returns a name for the identity of this user.
func defaultUser(getenv func(string) string) string {
	name := notInName.ReplaceAllString(cmp.Or(getenv("USER"), getenv("LOGNAME"), "user"), "-")
	return name[:min(len(name), 63)]
}

// joinText returns the join string of an argument.
func (a *app) joinText(arg string) (client.Secret, error) {
	if path, ok := strings.CutPrefix(arg, "@"); ok {
		return a.readSecret("join string", path)
	}
	if arg == "-" {
		return readSecretText("join string", a.in)
	}
	return client.Secret(arg), nil
}

// login makes an identity by a join string, and a context for it.
func (a *app) login(ctx context.Context, text client.Secret, name string, force bool) error {
	join, err := client.ParseJoinString(text, "user")
	if err != nil {
		return err
	}
	all, err := loadContexts(a.getenv)
	if err != nil {
		return err
	}
	contextName, err := all.nameFor(a.context, join)
	if err != nil {
		return err
	}
	old := all.find(contextName)
	if ok, err := a.mayReplace(old, !force && isTerminal(a.in)); !ok {
		return err
	}
	// The token is on disk before the cluster knows it: a login that is interrupted can be
	// repeated with the same token.
	pending, token, err := all.pendingToken(join)
	if err != nil {
		return err
	}
	got, err := client.Join(ctx, client.Config{Timeout: a.timeout, UserAgent: "dtaskctl"}, client.JoinOptions{String: join, Name: name, Token: token})
	if err != nil {
		if failed, ok := errors.AsType[*client.Error](err); ok && !failed.Unknown {
			_ = os.Remove(pending) // the cluster doesn't know it
		}
		return joinHint(err)
	}
	saved := savedContext{
		Addresses: got.Addresses, Cluster: got.Cluster, CA: got.CA, ID: got.Identity.GetId(), User: got.Identity.GetName(),
	}
	if saved.CA == "" {
		saved.CAKeys = []string{got.CAKey}
	}
	return a.loggedIn(saved, join, pending, got.Identity)
}

// loggedIn stores the context of a login that succeeded, and prints it.
func (a *app) loggedIn(saved savedContext, join client.JoinString, pending string, as *dtaskv1.Identity) error {
	tokenPath, old, err := a.keepLogin(&saved, join, pending)
	if err != nil {
		return withHint(err, "the cluster has made identity %d: repeat the command, which gives it to you", saved.ID)
	}
	doc := document.NewLogin(saved.Name, saved.Cluster, as)
	if old != nil && old.ID != 0 && old.ID != saved.ID {
		doc.ReplacedID = new(strconv.FormatUint(old.ID, 10))
		a.note("replaced context %s of %s, ID %d, whose token stays valid: an admin ends it with dtaskctl token revoke %d", old.Name, old.User, old.ID, old.ID)
	}
	return a.print(lines(doc,
		fmt.Sprintf("logged in to cluster %s as %s, ID %d", saved.Cluster, show.Caller(as), saved.ID),
		fmt.Sprintf("context %s is in use; its token is in %s and expires %s", saved.Name, tokenPath, show.Expiry(as.GetExpiresAt(), a.now())),
		"next: dtaskctl submit JOB.yaml --wait"))
}

// mayReplace asks a user on a terminal whether a login may replace a context, if there is
// one. A script that logs in again wants that.
func (a *app) mayReplace(old *savedContext, asks bool) (bool, error) {
	if old == nil || !asks {
		return true, nil
	}
	a.warn("context %s is logged in as %s, ID %d; --context NAME makes another one", old.Name, old.User, old.ID)
	ok, err := a.ask("replace context " + old.Name + "?")
	if err == nil && !ok {
		a.note("nothing was changed")
	}
	return ok, err
}

// joinHint adds a hint to the error of a join.
func joinHint(err error) error {
	switch {
	case errors.Is(err, client.ErrConflict):
		return withHint(err, "choose another --name")
	case errors.Is(err, client.ErrUntrusted):
		return withHint(err, "the secret of the join string was not sent")
	case errors.Is(err, client.ErrUnreachable):
		return withHint(err, "check that a coordinator is running at an address of the join string, and repeat the command")
	}
	return err
}

// keepLogin stores a context and its token, and returns the path of the token and the context
// that was replaced, if any. The contexts are read and the name is chosen again, because another
// login may have changed them meanwhile.
func (a *app) keepLogin(saved *savedContext, join client.JoinString, pending string) (tokenPath string, old *savedContext, err error) {
	all, unlock, err := lockContexts(a.getenv)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if saved.Name, err = all.nameFor(a.context, join); err != nil {
		return "", nil, err
	}
	if found := all.find(saved.Name); found != nil {
		old = new(*found)
	}
	saved.TokenFile = saved.Name + ".token"
	tokenPath = all.tokenPath(saved)
	all.set(*saved)
	all.Current = saved.Name
	if err := all.save(); err != nil {
		return "", nil, err
	}
	// Last: as long as the pending token exists, the login can be repeated.
	if err := os.Rename(pending, tokenPath); err != nil {
		return "", nil, fmt.Errorf("storing the token: %w", err)
	}
	return tokenPath, old, nil
}

// nameFor returns the name of the context for a login: the one that the user wants, that
// of an earlier login to the cluster, the name of the cluster unless another cluster's context
// has it, or the start of the ID of the cluster.
func (c *contexts) nameFor(wanted string, join client.JoinString) (string, error) {
	cluster := join.Cluster()
	if wanted == "" {
		for _, other := range c.Contexts {
			if other.Cluster == cluster {
				return other.Name, nil
			}
		}
		wanted = cluster[:8]
		if name := join.ClusterName(); name != "" && c.find(name) == nil {
			wanted = name
		}
	}
	if other := c.find(wanted); other != nil && other.Cluster != cluster {
		return "", usagef("context %s is of another cluster: choose another --context, or run dtaskctl context delete %s", wanted, wanted)
	}
	return wanted, nil
}

// pendingToken returns the token of a login, and the file that has it until the login
// succeeds.
func (c *contexts) pendingToken(join client.JoinString) (path string, token client.Secret, err error) {
	if err := c.makeDir(); err != nil {
		return "", "", err
	}
	path = filepath.Join(c.dir, fmt.Sprintf(".login-%s-%d", join.Cluster(), join.ID()))
	data, err := readOwn(path, maxToken)
	switch {
	case err == nil:
		// A crash may have left an empty file, before anything was sent.
		if _, err := auth.ParseToken(string(data)); err == nil {
			return path, client.Secret(bytes.TrimSpace(data)), nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", fmt.Errorf("reading the token of an earlier login: %w", err)
	}
	token = client.NewToken()
	if err := replaceFile(path, token.Reveal()+"\n"); err != nil {
		return "", "", fmt.Errorf("storing the token: %w", err)
	}
	return path, token, nil
}
