package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

// An app is the environment of a command: streams, variables and global flags.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time

	// started is set after flags and arguments are parsed: earlier errors are usage
	// errors.
	started bool

	addrs      []string
	timeout    time.Duration
	timeoutSet bool // the user set --timeout, which then also limits waiting for jobs
	output     outputFormat
	color      colorMode
	quiet      bool
}

// A view is the output of a command: a document for programs, and text for people.
type view struct {
	doc  any
	text func(*show.Printer)
}

// lines is a view whose text is fixed.
func lines(doc any, text ...string) view {
	return view{doc, func(p *show.Printer) {
		for _, line := range text {
			p.Line("%s", line)
		}
	}}
}

// connected runs a command with a client and prints the view that it returns. A
// command that has printed everything itself returns an empty view.
func (a *app) connected(do func(ctx context.Context, c *client.Client, args []string) (view, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := client.New(client.Config{Addrs: a.seeds(), Timeout: a.timeout,
			UserAgent: "dtaskctl"})
		if err != nil {
			return usage(err)
		}
		defer func() { _ = c.Close() }()
		v, err := do(cmd.Context(), c, args)
		if v.doc == nil {
			return err
		}
		return firstError(err, a.print(v))
	}
}

// seeds returns the addresses of --addr, or DTASK_ADDR. The client has a default.
func (a *app) seeds() []string {
	lists := a.addrs
	if len(lists) == 0 {
		lists = []string{a.getenv("DTASK_ADDR")}
	}
	var seeds []string
	for _, list := range lists {
		for addr := range strings.SplitSeq(list, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				seeds = append(seeds, addr)
			}
		}
	}
	return seeds
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

// print writes a view in the format of --output.
func (a *app) print(v view) error { return a.write(a.format(v)) }

// write writes formatted output, or returns the error of formatting it.
func (a *app) write(text []byte, err error) error {
	if err != nil {
		return err
	}
	if _, err := a.out.Write(text); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func (a *app) format(v view) ([]byte, error) {
	switch a.output {
	case outputJSON:
		text, err := document.MarshalIndent(v.doc)
		return append(text, '\n'), err
	case outputYAML:
		return show.YAML(v.doc)
	case outputTable:
	}
	p := show.NewPrinter(a.colored(a.out), a.now())
	v.text(p)
	return p.Bytes(), nil
}

// printIDs prints one ID per line.
func (a *app) printIDs(ids []string) error {
	p := show.NewPrinter(false, a.now())
	for _, id := range ids {
		p.Line("%s", show.Clean(id))
	}
	return a.write(p.Bytes(), nil)
}

// note writes a line to standard error unless -q is set.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.warn(format, args...)
	}
}

// warn writes a line to standard error. A command doesn't fail if this does.
func (a *app) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, format+"\n", args...)
}

// textOutput reports whether standard output is for people.
func (a *app) textOutput() bool { return a.output == outputTable }

// summaryWriter is standard output, or standard error if standard output has a
// document.
func (a *app) summaryWriter() io.Writer {
	if a.textOutput() {
		return a.out
	}
	return a.err
}

// colored reports whether output to w is colored.
func (a *app) colored(w io.Writer) bool {
	switch a.color {
	case colorAlways:
		return true
	case colorNever:
		return false
	case colorAuto:
	}
	if a.getenv("NO_COLOR") != "" {
		return false
	}
	for _, name := range []string{"CLICOLOR_FORCE", "FORCE_COLOR"} {
		if v := a.getenv(name); v != "" && v != "0" {
			return true
		}
	}
	return isTerminal(w) && a.getenv("TERM") != "dumb"
}

// isTerminal reports whether a stream, input or output, is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // file descriptors are small
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
