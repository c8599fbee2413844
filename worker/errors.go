package worker

import (
	"cmp"
	"errors"
	"time"
)

// handlerError is what Fatal, Retryable, Named and Exit make of an error.
type handlerError struct {
	err       error
	name      string // class for retry.on and retry.except; empty = none
	exit      int32  // exit code that this counts as; 0 = none
	fatal     bool
	temporary bool
}

// Error is the text of the wrapped error.
func (e *handlerError) Error() string { return e.err.Error() }

// Unwrap gives the wrapped error.
func (e *handlerError) Unwrap() error { return e.err }

// Fatal marks an error that no repeat can cure, such as input that makes no
// sense: the task fails at once, whatever its retry policy. Fatal(nil) is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err: err, fatal: true}
}

// Retryable marks an error that is always worth a repeat, as long as the retry
// policy has any left, even if the policy excepts its class. Retryable(nil) is
// nil.
func Retryable(err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err: err, temporary: true}
}

// Named gives an error a class, at most 63 bytes, that a job file can name as
// error:NAME in retry.on and retry.except. It can be combined with Fatal and
// Retryable. Named(…, nil) is nil.
func Named(name string, err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err: err, name: name}
}

// Exit makes an error count as the end of a command with this exit code, 1–255,
// in retry.on and retry.except; 75 is Retryable too, as it is for commands. It
// can be combined with the others. Exit(…, nil) is nil.
func Exit(code uint8, err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err: err, exit: int32(code), temporary: code == exitTemporary}
}

// verdictOn collects what all marks in the chain of err say; the outermost
// class and exit code count, and fatal wins over temporary.
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

// notStartedError says that an attempt could not be begun on this worker.
type notStartedError struct {
	err   error
	fatal bool // no other worker could begin it either
}

func (e *notStartedError) Error() string { return e.err.Error() }
func (e *notStartedError) Unwrap() error { return e.err }

// The causes for which the context of an attempt is ended. A handler sees them
// with context.Cause.
var (
	// ErrCancelled: a person, a deadline or a stopped job ended the attempt.
	ErrCancelled = errors.New("cancelled")
	// ErrSuperseded: the task belongs to a later attempt or has ended; what
	// this attempt made is discarded.
	ErrSuperseded = errors.New("superseded")
	// ErrTimedOut: the attempt's time-out, or the coordinator's, has passed.
	ErrTimedOut = errors.New("timed out")
	// ErrLeaseEnded: an at-most-once attempt may no longer run, since no
	// leader has answered this worker for the length of its lease.
	ErrLeaseEnded = errors.New("lease ended")
	// ErrDraining: the worker is stopping, or is drained by order, and the time for
	// that has passed.
	ErrDraining = errors.New("worker is stopping")
)

// Faults that end a session. None is more than a reason in the log.
var (
	errForeignCluster  = errors.New("the coordinator belongs to another cluster")
	errDeposed         = errors.New("the coordinator is of a lower term than one seen before")
	errLivenessTimeout = errors.New("nothing heard from the coordinator")
	errProtocol        = errors.New("the coordinator broke the protocol")
)

// errNotEnded is returned by Run when handlers ignored the end of their context.
var errStillRunning = errors.New("attempts did not end although they were told to")

// errUnacknowledged is returned by Run when a drain ended before every outcome
// was acknowledged; the coordinator gives the attempts up by itself.
var errUnacknowledged = errors.New("outcomes were not acknowledged in time")

// timeOutError is ErrTimedOut with which time-out it was. Its text is made only
// when one is needed: each attempt carries one of these as its possible cause.
type timeoutError struct {
	what  string
	limit time.Duration // 0 = the text says all
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
