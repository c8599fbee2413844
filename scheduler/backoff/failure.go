package backoff

// A Kind is the sort of a failure. Zero is unset.
type Kind uint8

// The kinds of failure.
const (
	// Exit: a command ended with a code other than 0.
	Exit Kind = iota + 1
	// Signal: a command was killed by a signal, and not by dtask.
	Signal
	// Timeout: a time-out of the attempt passed.
	Timeout
	// Lost: the worker was lost with the attempt, or gave it back.
	Lost
	// Start: the attempt could not be started.
	Start
	// OOM: it was killed for lack of memory.
	OOM
	// Error: a handler returned an error.
	Error
)

// String returns the kind as a class begins with it, or "unset".
func (k Kind) String() string {
	switch k {
	case Exit:
		return "exit"
	case Signal:
		return "signal"
	case Timeout:
		return "timeout"
	case Lost:
		return "lost"
	case Start:
		return "start"
	case OOM:
		return "oom"
	case Error:
		return "error"
	default:
		return "unset"
	}
}

// Burns reports whether such a failure uses up a retry. All do but Lost: that
// a worker went away says nothing about the task.
func (k Kind) CountsAsRetry() bool { return k != Lost }

// TryAgain is the exit code by which a command says that its failure is
// temporary (EX_TEMPFAIL of sysexits.h).
const TryAgain = 75

// A Failure is how an attempt failed.
type Failure struct {
	Kind Kind
	// Code is the exit code, for Exit.
	Code int
	// Name is the signal's without SIG, for Signal, and the error's, for Error;
	// empty for an error without one.
	Name string
}
