package worker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/internal/exitstatus"
	"github.com/dtask/dtask/internal/tlsconf"
)

// handlerError is an error that Fatal, Retryable, Named or Exit returned.
type handlerError struct {
	err       error
	name      string // class for retry.on and retry.except; empty = none
	exit      int32  // equivalent exit code; 0 = none
	fatal     bool
	temporary bool
}

// Error returns the text of the wrapped error.
func (e *handlerError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *handlerError) Unwrap() error { return e.err }

// Fatal marks an error that no retry can fix, such as invalid input: the task
// fails immediately, whatever its retry policy. Fatal(nil) is nil.
func Fatal(err error) error { return mark(handlerError{err: err, fatal: true}) }

// Retryable marks an error that is always retried while the retry policy has
// attempts left, even if the policy excludes its class. Retryable(nil) is nil.
func Retryable(err error) error { return mark(handlerError{err: err, temporary: true}) }

// Named gives an error a class of at most 63 bytes. A job file refers to it as
// error:NAME in retry.on and retry.except. It can be combined with Fatal and
// Retryable. Named of a nil error is nil.
func Named(name string, err error) error { return mark(handlerError{err: err, name: name}) }

// Exit makes an error equivalent to a command's exit code, 1–255, in retry.on
// and retry.except. Code 75 is also Retryable, as it is for commands. It can be
// combined with the others. Exit of a nil error is nil.
func Exit(code uint8, err error) error {
	return mark(handlerError{err: err, exit: int32(code), temporary: code == exitstatus.Temporary})
}

func mark(h handlerError) error {
	if h.err == nil {
		return nil
	}
	return &h
}

// markedBy combines all marks in the chain of err: the outermost class and exit
// code count, and fatal overrides temporary.
func markedBy(err error) handlerError {
	var v handlerError
	for e := err; e != nil; {
		var h *handlerError
		if !errors.As(e, &h) {
			break
		}
		v.name = cmp.Or(v.name, h.name)
		v.exit = cmp.Or(v.exit, h.exit)
		v.fatal = v.fatal || h.fatal
		v.temporary = v.temporary || h.temporary
		e = h.err
	}
	v.temporary = v.temporary && !v.fatal
	return v
}

// notStartedError is returned when an attempt could not be started on this
// worker.
type notStartedError struct {
	err   error
	fatal bool // no other worker could start it either
}

func (e *notStartedError) Error() string { return e.err.Error() }
func (e *notStartedError) Unwrap() error { return e.err }

// The causes with which the context of an attempt ends, as context.Cause
// returns them.
var (
	// ErrCancelled means that the user, a deadline or a stopped job ended the
	// attempt.
	ErrCancelled = errors.New("cancelled")
	// ErrSuperseded means that the task has a later attempt or has ended; the
	// results of this attempt are discarded.
	ErrSuperseded = errors.New("superseded")
	// ErrTimedOut means that the attempt's timeout, or the coordinator's, has
	// expired.
	ErrTimedOut = errors.New("timed out")
	// ErrLeaseEnded means that an at-most-once attempt must stop, because no
	// leader has answered this worker for the length of its lease.
	ErrLeaseEnded = errors.New("lease ended")
	// errLimitedLeaseEnded is ErrLeaseEnded for an attempt that counts towards a named limit,
	// and may be executed again.
	errLimitedLeaseEnded = fmt.Errorf("%w: the attempt counts towards a limit", ErrLeaseEnded)
	// ErrDraining means that the worker stops or is drained by the operator,
	// and the drain timeout has expired.
	ErrDraining = errors.New("worker is stopping")
	// ErrPreempted means that an urgent task takes the place of the attempt. The task is
	// preemptible, and runs again later.
	ErrPreempted = errors.New("an urgent task takes its place")
)

// NameInUseError is returned by Run if another process that is alive is a worker
// of the cluster under the name in Config.Name. The caller should stop that process
// or choose another name; running again has the same result.
type NameInUseError struct {
	Name    string
	Host    string // of the other process, as it states it; may be empty
	Address string // of its connection, as the coordinator sees it; may be empty
}

// Error names the other process, and what to do.
func (e *NameInUseError) Error() string {
	where := ""
	if e.Host != "" {
		where = " on host " + e.Host
	}
	if e.Address != "" {
		where += " (" + e.Address + ")"
	}
	return fmt.Sprintf("worker name %q is in use by another process%s: stop that process, or set another --name", e.Name, where)
}

// RevokedError is returned by Run if the cluster has revoked the identity of the worker, or
// doesn't know it. Its attempts were stopped; the cluster has given them to other workers.
// The caller needs another join string; running again has the same result.
type RevokedError struct {
	Name    string
	Cluster string // its ID
	Dir     string // the worker's directory; empty unless it has joined by a join string
	Reason  string // as the coordinator states it
}

// Error says what to do.
func (e *RevokedError) Error() string {
	text := fmt.Sprintf("the identity of worker %s was revoked, or is unknown to cluster %s", e.Name, e.Cluster)
	if e.Dir == "" {
		return text + ": " + e.Reason
	}
	return fmt.Sprintf("%s: to let it join again, remove %s and %s in %s, and start it with a new join string (dtaskctl join-token create worker)",
		text, tlsconf.WorkerKeyFile, membershipFile, e.Dir)
}

// WorkDirInUseError is returned by Run if another process uses the worker's
// directory. The caller should stop that process or choose another directory.
type WorkDirInUseError struct{ Dir string }

// Error names the directory, and what to do.
func (e *WorkDirInUseError) Error() string {
	return fmt.Sprintf("work directory %s is used by another process: stop that process, or set another --name or --work-dir", e.Dir)
}

// foreignClusterError ends a session with a coordinator of another cluster.
type foreignClusterError struct{ cluster string }

func (*foreignClusterError) Error() string { return "coordinator belongs to another cluster" }

// Errors that end a session. They appear in the log only.
var (
	errDeposed         = errors.New("coordinator has an older term than the last leader")
	errLivenessTimeout = errors.New("liveness timeout: coordinator is silent")
	errProtocol        = errors.New("invalid message from coordinator")
)

// errStillRunning is returned by Run if handlers ignored the end of their
// context.
var errStillRunning = errors.New("attempts ignored cancellation")

// errUnacknowledged is returned by Run if a drain ended before all outcomes
// were acknowledged. The coordinator eventually marks the worker down and
// requeues the attempts.
var errUnacknowledged = errors.New("outcomes not acknowledged in time")

// timeoutError is ErrTimedOut with the timeout that expired. Its text is
// formatted on demand: each attempt holds one as a possible cause.
type timeoutError struct {
	what  string
	limit time.Duration // 0 = not part of the text
}

func (e *timeoutError) Error() string {
	if e.limit == 0 {
		return ErrTimedOut.Error() + ": " + e.what
	}
	return ErrTimedOut.Error() + ": " + e.what + " " + e.limit.String()
}

func (e *timeoutError) Unwrap() error { return ErrTimedOut }

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
