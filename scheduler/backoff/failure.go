package backoff

// A Kind is the kind of a failure. Zero is unset.
type Kind uint8

// The kinds of failure.
const (
	// Exit: a command exited with a code other than 0.
	Exit Kind = iota + 1
	// Signal: a command was killed by a signal that dtask did not send.
	Signal
	// Timeout: the attempt exceeded a timeout.
	Timeout
	// Lost: the worker went down with the attempt, or released it.
	Lost
	// Start: the attempt could not be started.
	Start
	// OOM: the attempt was killed for lack of memory.
	OOM
	// Error: a handler returned an error.
	Error
)

var kindNames = [...]string{"unset", "exit", "signal", "timeout", "lost", "start", "oom", "error"}

// String returns the word with which a class of this kind starts, or "unset".
func (k Kind) String() string {
	if k > Error {
		k = 0
	}
	return kindNames[k]
}

// CountsAsRetry reports whether a failure of this kind uses up a retry. Every
// kind does except Lost: a worker that goes down says nothing about the task.
func (k Kind) CountsAsRetry() bool { return k != Lost }

// TryAgain is the exit code of a command whose failure is temporary
// (EX_TEMPFAIL of sysexits.h).
const TryAgain = 75

// A Failure is how an attempt failed.
type Failure struct {
	Kind Kind
	// Code is the exit code, for Exit.
	Code int
	// Name is the name of the signal without SIG, for Signal, or of the error,
	// for Error. It is empty for an error without a name.
	Name string
}
