package worker

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/dtask/dtask/worker/process"
)

// errNotBegun is returned if an attempt ended while it waited for a confirmation.
var errNotBegun = errors.New(notBegun)

// runProgram runs a program while the leader's last confirmation is fresh. The
// supervisor checks that again, immediately before it starts the program; if
// the worker was stopped on the way there, the attempt waits for the next
// confirmation.
func (w *Worker) runProgram(a *attempt, s *process.Spec) (exit process.Exit, err error) {
	for {
		exit, err = whileBusy(a.ctx, func() (process.Exit, error) { return w.tryProgram(a, s) })
		if !errors.Is(err, process.ErrTooLate) {
			return exit, err
		}
	}
}

// tryProgram is runProgram for one confirmation.
func (w *Worker) tryProgram(a *attempt, s *process.Spec) (exit process.Exit, err error) {
	var stdin io.Reader
	err = a.slot.programs.User.Do(func() (err error) {
		stdin, err = standardInput(&a.invocation().task, a.body.GetStdin())
		return err
	})
	if err != nil {
		return process.Exit{}, &notStartedError{err: err}
	}
	if closer, ok := stdin.(io.Closer); ok {
		defer func() { _ = closer.Close() }() // read only
	}
	first := !a.begun
	if !w.attempts.begin(a) {
		return process.Exit{}, errNotBegun
	}
	s.Stdin, s.StartBefore = stdin, 0
	if first { // further items of an attempt that has begun need no confirmation
		s.StartBefore = w.attempts.confirmed.expiry()
	}
	exit, err = a.slot.programs.Run(a.ctx, *s)
	switch {
	case errors.Is(err, process.ErrTooLate):
		a.begun = false
	case isBusy(err): // nothing has begun
		a.begun = !first
	}
	return exit, err
}

// maxBusyPause is the longest pause before a busy program is tried again. All pauses last
// half a second together.
const maxBusyPause = 256 * time.Millisecond

// whileBusy runs a program, and tries again while its file is open for writing. A file that
// was just written, and closed, is open for a moment in each process that its writer was
// starting meanwhile, until that process executes its own program
// (https://go.dev/issue/22315): this worker unpacks files while it starts supervisors.
//
// Between two tries no supervisor has the program, so that an attempt that ends meanwhile
// starts nothing.
func whileBusy(ctx context.Context, try func() (process.Exit, error)) (process.Exit, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		exit, err := try()
		if !isBusy(err) || pause > maxBusyPause {
			return exit, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done(): // the next try doesn't start the program
			timer.Stop()
		}
	}
}

// isBusy reports whether a program was not started because its file is open for writing.
func isBusy(err error) bool { return errors.Is(err, syscall.ETXTBSY) }
