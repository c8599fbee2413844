package cli

import (
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
	exitWaited      = 8
	exitInterrupted = 130
)

var (
	// errWorkFailed is returned when the work that was waited for, or whose
	// result was asked for, ended other than well; the caller reports it.
	errWorkFailed = errors.New("the work failed")
	// errWaited is returned when --timeout passed while the work went on; the
	// user may wait again.
	errWaited = errors.New("timed out waiting for the work")
)

// A usageError is a command line that makes no sense.
type usageError struct {
	err     error
	command string // as typed, for the hint
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// A hintedError says what to do next better than the table can.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// outcomes is the one table from errors to exit codes and to what to do next.
// The first that fits counts.
var outcomes = []struct {
	err  error
	code int
	hint string
}{
	{errWorkFailed, exitFailed, ""},
	{errWaited, exitWaited, "the work goes on: wait again with dtaskctl wait, or give a longer --timeout"},
	{client.ErrInvalid, exitUsage, ""},
	{client.ErrNotFound, exitNotFound, "dtaskctl list shows the jobs, dtaskctl status JOB the tasks of one"},
	{client.ErrConflict, exitConflict, "dtaskctl status JOB shows how it stands"},
	{client.ErrBusy, exitRefused, "nothing happened: try again later, or give a longer --timeout"},
	{client.ErrRefused, exitRefused, ""},
	{client.ErrCompacted, exitRefused, "what changed since then is not known any more: watch without --from"},
	{client.ErrUnreachable, exitUnreachable, "is a coordinator running there? --addr HOST:PORT[,…] or DTASK_ADDR names others; --timeout waits longer"},
	{context.Canceled, exitInterrupted, ""},
}

// explain tells the user about an error and returns the exit code.
func (a *app) explain(ctx context.Context, err error) int {
	if ctx.Err() != nil {
		a.line("dtaskctl: interrupted")
		a.hint(err, "")
		return exitInterrupted
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		a.line("dtaskctl: %s", show.Clean(firstLine(usage.Error())))
		a.line("hint: %s --help tells how to use it", usage.command)
		return exitUsage
	}
	if faults, ok := errors.AsType[spec.Faults](err); ok {
		for _, f := range faults.Lines() {
			a.line("%s", show.Clean(f))
		}
		return exitJobFile
	}
	code, hint := exitFailed, ""
	_, file := errors.AsType[*jobFileError](err)
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			code, hint = o.code, o.hint
			break
		}
	}
	if file {
		code = exitJobFile
	}
	details, ok := errors.AsType[*client.Error](err)
	if ok && details.Kind == nil {
		code, hint = exitUnreachable, "the coordinator's log says more"
	}
	a.line("dtaskctl: %s", show.Clean(what(err, details)))
	if ok {
		for _, f := range details.Faults {
			a.line("  %s", show.Clean(f))
		}
		if details.Kind == client.ErrUnreachable && details.Key != "" && details.Unknown { //nolint:errorlint // the kind itself
			hint = "the job may be stored all the same: submit again with --idempotency-key " + details.Key + " to get one job"
		}
	}
	a.hint(err, hint)
	return code
}

// what is the message of an error without the faults, which follow.
func what(err error, details *client.Error) string {
	if details != nil && len(details.Faults) > 0 {
		return details.Message
	}
	return err.Error()
}

// hint prints what to do next: what the error itself says, or the given text.
func (a *app) hint(err error, hint string) {
	if h, ok := errors.AsType[*hintedError](err); ok {
		hint = h.hint
	}
	if hint != "" {
		a.line("hint: %s", hint)
	}
}

// line writes a line to standard error, also with -q.
func (a *app) line(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, format+"\n", args...)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
