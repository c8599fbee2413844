package process

import (
	"errors"
	"fmt"
)

// ErrNoSupervisor is returned by [Ready] and [Pool.Run] if the program has not
// called [RunSupervisor]: its supervisors would execute its normal main. The
// call must be the first statement of main, and of TestMain in tests.
var ErrNoSupervisor = errors.New("process: RunSupervisor was not called at the start of main")

// ErrStuck is the cause in a [SupervisorError] if the process tree was still
// alive 15 s after its grace, and the supervisor was killed.
var ErrStuck = errors.New("process: process tree did not end in time")

// ErrTooLate is returned if [Spec].StartBefore, or its lease, had passed when the supervisor was
// about to start the program. None of it ran.
var ErrTooLate = errors.New("process: too late to start the program")

// ErrLeaseEnded is returned if the program was ended because [Spec].Lease had ended.
var ErrLeaseEnded = errors.New("process: the lease of the program ended")

// errLost is the cause in a SupervisorError if the supervisor exited without a
// report.
var errLost = errors.New("exited without a report")

// A SupervisorError is returned if the supervisor of a program could not be
// started, died, or could not do its work. The fate of the program is unknown.
type SupervisorError struct {
	Started bool // the program may have been started
	Err     error
}

// Error reports whether the program may have been started.
func (e *SupervisorError) Error() string {
	if e.Started {
		return fmt.Sprintf("supervisor lost while the program ran: %v", e.Err)
	}
	return fmt.Sprintf("supervisor lost before the program started: %v", e.Err)
}

// Unwrap returns the cause.
func (e *SupervisorError) Unwrap() error { return e.Err }
