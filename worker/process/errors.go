package process

import (
	"errors"
	"fmt"
)

// ErrNoSupervisor is returned by [Ready] and [Run] when the program has not called
// [RunSupervisor]: a supervisor of it would run its normal main. The caller should add
// the call as the first line of main (in tests, of TestMain).
var ErrNoSupervisor = errors.New("process.RunSupervisor was not called at the start of main")

// ErrStuck is the cause in a [SupervisorError] when the tree was not gone a good
// while after its grace had ended, so that the supervisor was killed.
var ErrStuck = errors.New("the process tree did not end in time")

// errLost is the cause in a SupervisorError when the supervisor ended without a report.
var errLost = errors.New("it ended without a report")

// A StartError says that the program of a [Spec] could not be started: nothing
// of it ran. Trying again on the same machine is likely to fail the same way.
type StartError struct {
	Path string // what could not be used: the program, or the working directory
	Err  error  // why: often a syscall.Errno such as ENOENT or EACCES
}

// Error names the path and the reason.
func (e *StartError) Error() string { return fmt.Sprintf("starting %s: %v", e.Path, e.Err) }

// Unwrap gives the reason, for errors.Is with fs.ErrNotExist and the like.
func (e *StartError) Unwrap() error { return e.Err }

// A SupervisorError says that the supervisor of a program could not be started, died, or
// could not do its work. It says nothing about the program itself.
type SupervisorError struct {
	Started bool // the program had been started; how far it came is unknown
	Err     error
}

// Error says whether the program had been started.
func (e *SupervisorError) Error() string {
	if e.Started {
		return fmt.Sprintf("the supervisor was lost while the program ran: %v", e.Err)
	}
	return fmt.Sprintf("the supervisor was lost before the program was seen to start: %v", e.Err)
}

// Unwrap gives the cause.
func (e *SupervisorError) Unwrap() error { return e.Err }
