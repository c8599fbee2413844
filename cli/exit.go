package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
)

// Exit codes. They are part of the stable surface.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitJobFile     = 3
	exitNotFound    = 4
	exitConflict    = 5
	exitRefused     = 6
	exitUnreachable = 7
	exitWaitTimeout = 8
	exitOwn         = 125 // of all of dtaskctl's errors with run --wait, but interrupts
	exitInterrupted = 130
)

// An exitError is the error of `run --wait` if the command failed. The exit code is the
// command's, whatever that number means for dtaskctl.
type exitError struct {
	err  error
	code int
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// ownFailuresAs gives all errors of dtaskctl the exit code 125 from now on if wait is
// set: the other codes are those of the command that is waited for.
func (a *app) ownFailuresAs(wait bool) {
	if wait {
		a.ownExit = exitOwn
	}
}

// errWaitTimeout is returned when --timeout passed before a job finished; the
// user may wait again.
var errWaitTimeout = errors.New("timed out waiting for the job")

// A commandError is an error with an exit code, a hint, or both of its own.
type commandError struct {
	err  error
	code int    // 0 = by the table
	hint string // empty = by the table
}

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// usage marks an error as a fault of the command line.
func usage(err error) error { return &commandError{err: err, code: exitUsage} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// withHint adds a hint to an error.
func withHint(err error, format string, args ...any) error {
	return &commandError{err: err, hint: fmt.Sprintf(format, args...)}
}

// exitTable maps errors to exit codes and hints. The first match applies.
var exitTable = []struct {
	err  error
	code int
	hint string
}{
	{errWaitTimeout, exitWaitTimeout, "the job is still running: run dtaskctl wait, or set a longer --timeout"},
	{client.ErrInvalid, exitUsage, ""},
	{client.ErrNotFound, exitNotFound, "dtaskctl list shows jobs; dtaskctl status JOB shows the tasks of a job"},
	{client.ErrConflict, exitConflict, "dtaskctl status JOB shows the current state"},
	{client.ErrBusy, exitRefused, "nothing was changed: retry later, or set a longer --timeout"},
	{client.ErrForeignCluster, exitRefused, "--addr or DTASK_ADDR sets the addresses, --cluster-id or DTASK_CLUSTER_ID the cluster"},
	{
		client.ErrUnauthenticated, exitRefused,
		"log in with dtaskctl login STRING, or set --token-file or DTASK_TOKEN_FILE; dtaskctl join-token create user makes a string",
	},
	{client.ErrClock, exitRefused, "nothing was sent: set the clock of this machine, and run the command again"},
	{client.ErrUntrusted, exitRefused, "nothing was sent; dtaskctl context show shows the CA that is trusted"},
	{client.ErrRefused, exitRefused, ""},
	{client.ErrCompacted, exitRefused, "older changes are no longer available: run watch without --from"},
	{
		client.ErrUnreachable, exitUnreachable,
		"check that a coordinator is running at this address; --addr or DTASK_ADDR sets others",
	},
	{context.Canceled, exitInterrupted, ""},
}

// explain prints an error with a hint and returns the exit code.
func (a *app) explain(ctx context.Context, command string, err error) int {
	if end, ok := errors.AsType[*exitError](err); ok {
		a.report(end.Error(), nil, end.hint)
		return end.code
	}
	code := a.explainOwn(ctx, command, err)
	if code == exitInterrupted {
		return code
	}
	return cmp.Or(a.ownExit, code)
}

// explainOwn is explain for errors of dtaskctl.
func (a *app) explainOwn(ctx context.Context, command string, err error) int {
	own, ok := errors.AsType[*commandError](err)
	if !ok {
		own = new(commandError)
	}
	if ctx.Err() != nil {
		a.report("interrupted", nil, own.hint)
		return exitInterrupted
	}
	if own.code == exitUsage {
		a.report(firstLine(err.Error()), nil, "run "+command+" --help for usage")
		return exitUsage
	}
	if faults, ok := errors.AsType[spec.Faults](err); ok {
		for _, line := range faults.Lines() {
			a.warn("%s", show.Clean(line))
		}
		return exitJobFile
	}
	code, hint := classify(err)
	message, faults := err.Error(), []string(nil)
	if details, ok := errors.AsType[*client.Error](err); ok && len(details.Faults) > 0 {
		message, faults = details.Message, details.Faults
	}
	a.report(message, faults, cmp.Or(own.hint, hint))
	return cmp.Or(own.code, code)
}

// classify returns the exit code and the hint for an error.
func classify(err error) (code int, hint string) {
	code = exitFailed
	for _, row := range exitTable {
		if errors.Is(err, row.err) {
			code, hint = row.code, row.hint
			break
		}
	}
	switch details, ok := errors.AsType[*client.Error](err); {
	case !ok:
	case details.Kind == nil:
		code, hint = exitUnreachable, "see the coordinator's log for details"
	case details.Kind == client.ErrUnreachable && details.Answered && !details.Unknown: //nolint:errorlint // the kind itself
		hint = "dtaskctl cluster status shows the coordinators: more than half of them must be up"
	case details.Kind == client.ErrUnreachable && details.Key != "" && details.Unknown: //nolint:errorlint // the kind itself
		hint = "the job may have been submitted: to submit it once, repeat with --idempotency-key " + details.Key
	}
	return code, hint
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// firstError returns the first error that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
