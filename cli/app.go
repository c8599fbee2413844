package cli

import (
	"context"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// An app is the environment of a command: its streams and the global flags.
type app struct {
	output
	staleRead

	// started is set after flags and arguments are parsed: earlier errors are usage
	// errors.
	started bool
	args    []string // as the user typed them
	// ownExit is the exit code of all of dtaskctl's errors but interrupts; 0 = by
	// exitTable. It keeps them apart from the exit code of a command.
	ownExit int

	// dir is where relative paths of files that commands create begin; empty = the working
	// directory.
	dir string

	addrs      []string
	socket     string
	context    string // --context
	cluster    string // --cluster-id
	tokenFile  string
	caFile     string
	timeout    time.Duration
	timeoutSet bool // the user set --timeout, which then also limits waiting for jobs

	resolved map[string]jobRef // the jobs that @NAME meant so far, by NAME

	usedContext string // the context whose CA the connection trusts; empty: none
	changedCA   changedCA
}

// connected runs a command with a client and prints the view that it returns. A
// command that has printed everything itself returns an empty view.
func (a *app) connected(do func(ctx context.Context, c *client.Client, args []string) (view, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		// New doesn't dial: a command may still reject its arguments.
		c, err := a.newClientWith(a.timeout, a.waits())
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		defer a.keepCA(cmd.Context())
		v, err := do(cmd.Context(), c, args)
		a.warnForeign(c, err)
		if v.doc != nil {
			err = firstError(err, a.print(v))
		}
		if age := a.age(); age != "" {
			a.note("%s", age)
		}
		return err
	}
}

// newClient returns a client of the cluster that flags, environment and contexts name.
func (a *app) newClient(timeout time.Duration) (*client.Client, error) {
	return a.newClientWith(timeout, nil)
}

// waits returns what tells the user for what a call waits. The same text is not repeated: a command
// may have many calls.
func (a *app) waits() func(text string) {
	var mu sync.Mutex // guards last, and keeps lines apart
	last := ""
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if text != last {
			last = text
			a.note("%s", show.Clean(text))
		}
	}
}

// newClientWith is newClient with a function that learns of calls that wait.
func (a *app) newClientWith(timeout time.Duration, waiting func(text string)) (*client.Client, error) {
	conn, err := a.connection()
	if err != nil {
		return nil, connectionError(err)
	}
	c, err := client.New(client.Config{
		Addrs: conn.addrs, Cluster: conn.cluster, Credentials: conn.credentials, Token: conn.token, Timeout: timeout, UserAgent: "dtaskctl", Waiting: waiting,
	})
	if err != nil {
		return nil, usage(err)
	}
	return c, nil
}

// created returns the path of a file or directory that a command creates.
func (a *app) created(path string) string {
	if a.dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(a.dir, path)
}

// warnForeign warns of addresses of other clusters, except those that the error
// names.
func (a *app) warnForeign(c *client.Client, err error) {
	for _, f := range c.ForeignAddresses() {
		if err == nil || !strings.Contains(err.Error(), f.Address) {
			a.report("warning: "+f.String(), nil, "")
		}
	}
}

// seeds returns the addresses of coordinators. The client has a default.
func (a *app) seeds() []string {
	saved, _, err := a.savedContext()
	if err != nil {
		return nil // newClient reports it
	}
	return a.addresses(saved)
}

// waitContext limits waiting for jobs to --timeout if the user set it. It ends
// after the client's own timeout, so that an unreachable cluster is reported as
// such.
func (a *app) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if !a.timeoutSet {
		return context.WithCancel(ctx)
	}
	const margin = 250 * time.Millisecond
	return context.WithTimeoutCause(ctx, a.timeout+margin, errWaitTimeout)
}

// collect reads all values of a listing. It returns the first error.
func collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
