package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// stuckTimeout is how long after the grace the tree must be gone. Killing a
// large tree on a busy machine takes one or two seconds; it takes longer only
// if the supervisor was stopped, or a process is in an uninterruptible wait.
const stuckTimeout = 15 * time.Second

// Run starts the program under a supervisor and returns when the whole tree is
// gone.
//
// When ctx is done, all processes of the tree get SIGTERM and, after
// s.KillGrace, SIGKILL. The error then wraps context.Cause(ctx), beside a valid
// Exit if the program had started. If the program ended before the stop, there
// is no error. See the package comment for the other errors.
//
// Run may be called by any number of goroutines concurrently.
func Run(ctx context.Context, s Spec) (Exit, error) {
	return runWithLimit(ctx, s, stuckTimeout)
}

// runWithLimit is Run with another stuckTimeout.
func runWithLimit(ctx context.Context, s Spec, limit time.Duration) (Exit, error) {
	if err := Ready(); err != nil {
		return Exit{}, err
	}
	if ctx.Err() != nil {
		return Exit{}, fmt.Errorf("stopped before start: %w", context.Cause(ctx))
	}
	start, err := s.order()
	if err != nil {
		return Exit{}, err
	}
	streams, err := openStdio(&s)
	if err != nil {
		return Exit{}, &SupervisorError{Err: fmt.Errorf("opening standard streams: %w", err)}
	}
	r := &run{spec: &s, limit: limit, start: start, stop: make(chan stopOrder, 1), reports: make(chan report)}
	if err = r.open(streams); err != nil {
		_ = streams.finish() // nothing ran, so nothing was copied
		return Exit{}, &SupervisorError{Err: err}
	}
	outcome := r.wait(ctx)
	if copyErr := streams.finish(); outcome == nil {
		outcome = copyErr
	}
	return r.exit, outcome
}

// A run is the worker's end of one supervisor.
type run struct {
	spec       *Spec
	limit      time.Duration // after the grace
	start      *startOrder
	supervisor *os.Process
	orders     *os.File // write end; closing it is the order to kill immediately
	status     *os.File // read end

	pipes   sync.WaitGroup // the two goroutines that use the pipes
	stop    chan stopOrder // size 1: at most one is sent; closed after the end
	reports chan report    // closed when the supervisor has ended

	started bool
	exit    Exit
}

// open starts the supervisor and the goroutines that use its pipes. It always
// closes the program's ends of the streams.
func (r *run) open(streams *stdio) error {
	defer streams.closeChild()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }() // the supervisor has its copy
	ordersRead, ordersWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ordersRead.Close() }() // the supervisor has its copy
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		_ = ordersWrite.Close() // nothing was written
		return err
	}
	defer func() { _ = statusWrite.Close() }() // the supervisor has its copy

	// /proc/self/exe is this binary even if an upgrade has replaced the file.
	// One CPU is enough, and limits the runtime's threads.
	r.supervisor, err = os.StartProcess("/proc/self/exe", []string{supervisorName}, &os.ProcAttr{
		Dir: "/",
		Env: []string{supervisorMark, "GOMAXPROCS=1"},
		Files: []*os.File{
			null, null, null, ordersRead, statusWrite,
			streams.child[0], streams.child[1], streams.child[2],
		},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_, _ = ordersWrite.Close(), statusRead.Close() // nothing was written
		return fmt.Errorf("starting supervisor: %w", err)
	}
	r.orders, r.status = ordersWrite, statusRead
	r.pipes.Go(r.pumpOrders)
	r.pipes.Go(r.pumpReports)
	return nil
}

// pumpOrders writes the start and at most one stop. A supervisor that does not
// read blocks only this goroutine, and its end breaks the pipe.
func (r *run) pumpOrders() {
	enc := json.NewEncoder(r.orders)
	if enc.Encode(order{Start: r.start}) != nil {
		return // the supervisor is gone; pumpReports notices
	}
	if stop, ok := <-r.stop; ok {
		_ = enc.Encode(order{Stop: &stop}) // as above
	}
}

// pumpReports reads until the supervisor ends.
func (r *run) pumpReports() {
	defer close(r.reports)
	dec := json.NewDecoder(r.status)
	for {
		var rep report
		if dec.Decode(&rep) != nil {
			return
		}
		r.reports <- rep
	}
}

// wait returns after the supervisor, and with it the tree, has ended and was
// reaped.
func (r *run) wait(ctx context.Context) error {
	last, stuck := r.follow(ctx)
	// Kill a lost supervisor and its tree. The supervisor's pid is not reused
	// before Wait, so the search for leftovers cannot hit other processes.
	if last.Exit == nil && last.StartFailure == nil {
		_ = r.supervisor.Kill()
		killLeftovers(r.supervisor.Pid, r.spec.Env)
	}
	_, waitErr := r.supervisor.Wait()
	close(r.stop)
	r.pipes.Wait()
	_, _ = r.orders.Close(), r.status.Close() // the other ends are gone

	switch {
	case last.StartFailure != nil:
		return r.startError(last.StartFailure)
	case last.Exit != nil:
		r.exit = last.Exit.Exit
		if last.Exit.Stopped && ctx.Err() != nil {
			return fmt.Errorf("program stopped: %w", context.Cause(ctx))
		}
		return nil
	}
	lost := &SupervisorError{Started: r.started, Err: errLost}
	switch {
	case stuck:
		lost.Err = ErrStuck
	case last.Error != "":
		lost.Err = errors.New(last.Error)
	case waitErr != nil:
		lost.Err = waitErr
	}
	if ctx.Err() != nil {
		return errors.Join(lost, context.Cause(ctx))
	}
	return lost
}

// follow forwards the end of ctx to the supervisor, and returns the last
// report.
func (r *run) follow(ctx context.Context) (last report, stuck bool) {
	done := ctx.Done()
	var limit <-chan time.Time
	for {
		select {
		case rep, ok := <-r.reports:
			if !ok {
				return last, stuck
			}
			r.started = r.started || rep.Started
			last = rep
		case <-done:
			done = nil
			grace := max(r.spec.KillGrace, 0)
			r.stop <- stopOrder{Grace: grace}
			timer := time.NewTimer(grace + r.limit)
			defer timer.Stop() //nolint:revive,gocritic // done is nil from here on: this runs once
			limit = timer.C
		case <-limit:
			stuck = true
			_ = r.supervisor.Kill() // its end closes r.reports
		}
	}
}

// startError returns the kernel's error for the caller.
func (r *run) startError(failure *startFailure) error {
	if failure.TooLate {
		return ErrTooLate
	}
	err := errors.New(failure.Text)
	if failure.Errno != 0 {
		err = syscall.Errno(failure.Errno)
	}
	return &StartError{Path: string(r.start.Path), Err: err}
}
