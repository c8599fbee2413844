package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
)

// An app is what a command runs in: its streams, surroundings and global flags.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time

	// started is set once flags and arguments were understood: what goes wrong
	// before is a matter of usage.
	started bool

	addrs      []string
	timeout    time.Duration
	timeoutSet bool // by the user: it then also limits how long work is waited for
	output     string
	color      string
	quiet      bool
}

// client connects to the cluster; the caller closes it.
func (a *app) client() (*client.Client, error) {
	c, err := client.New(client.Config{Addrs: a.seeds(), Timeout: a.timeout, UserAgent: "dtaskctl"})
	if err != nil {
		return nil, &usageError{err: err, command: "dtaskctl"}
	}
	return c, nil
}

// seeds are the addresses of --addr, or DTASK_ADDR, or the default.
func (a *app) seeds() []string {
	given := a.addrs
	if len(given) == 0 {
		given = []string{a.getenv("DTASK_ADDR")}
	}
	var seeds []string
	for _, list := range given {
		for addr := range strings.SplitSeq(list, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				seeds = append(seeds, addr)
			}
		}
	}
	return seeds
}

// waiting limits how long work is waited for, if the user set --timeout: work that
// is known to be stored. The client's own patience ends a little earlier, so that
// an unreachable cluster shows as such.
func (a *app) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if !a.timeoutSet {
		return context.WithCancel(ctx)
	}
	const later = 250 * time.Millisecond
	return context.WithTimeoutCause(ctx, a.timeout+later, errWaited)
}

// print writes a document in the form that the user wants: as JSON or YAML, or
// by table for people.
func (a *app) print(doc any, table func(w io.Writer) error) error {
	switch a.output {
	case outputJSON:
		return show.WriteJSON(a.out, doc)
	case outputYAML:
		return show.WriteYAML(a.out, doc)
	}
	return table(a.out)
}

// ids prints ids, one a line, for -q.
func (a *app) ids(ids []string) error {
	for _, id := range ids {
		if _, err := fmt.Fprintln(a.out, show.Clean(id)); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// say writes a line to standard error, unless -q. Its failure is of no
// consequence for the work.
func (a *app) say(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// people tells whether standard output is for people.
func (a *app) people() bool { return a.output == outputTable }

// paint tells whether w is to be coloured.
func (a *app) paint(w io.Writer) show.Paint {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	if a.getenv("NO_COLOR") != "" {
		return false
	}
	for _, name := range []string{"CLICOLOR_FORCE", "FORCE_COLOR"} {
		if v := a.getenv(name); v != "" && v != "0" {
			return true
		}
	}
	return show.Paint(isTerminal(w) && a.getenv("TERM") != "dumb")
}

// isTerminal tells whether a stream, of input or output, is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // file descriptors are small
}

// jobID checks that s can be the id of a job: a decimal number.
func jobID(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err != nil || n == 0 {
		return "", &client.Error{Kind: client.ErrNotFound, Message: fmt.Sprintf("no job has the id %q: ids are numbers like 42", s)}
	}
	return s, nil
}

// taskRef takes JOB or JOB/TASK apart.
func taskRef(s string) (job, task string, err error) {
	job, task, found := strings.Cut(s, "/")
	if job, err = jobID(job); err != nil {
		return "", "", err
	}
	if found && task == "" {
		return "", "", &client.Error{Kind: client.ErrNotFound, Message: fmt.Sprintf("%q names no task: write JOB/TASK, like 42/fetch", s)}
	}
	return job, task, nil
}
