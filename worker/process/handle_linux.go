package process

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errNotReceived means that a supervisor ended before it had read the order to
// start a program, so that the program certainly did not start.
var errNotReceived = errors.New("ended before it received the order")

// errNotSent means that a stop came before the order to start a program was sent.
var errNotSent = errors.New("stopped before start")

// A handle is the worker's end of one supervisor. Except for stop, only one
// goroutine at a time uses it.
type handle struct {
	process   *os.Process
	conn      *net.UnixConn
	reports   *gob.Decoder // of conn
	idleSince time.Time    // guarded by the pool
	usable    bool         // it can run another program

	sending sync.Mutex // guards the rest
	orders  *gob.Encoder
	buf     bytes.Buffer // of orders
	sent    bool         // the order to start the last program, at least a part of it
	stopped bool         // the last program, before that
}

// A run is one program for a supervisor.
type run struct {
	spec    *Spec
	start   *startOrder
	streams *stdio
	limit   time.Duration // after the grace
}

// startSupervisor starts a supervisor, which waits for its first order.
func startSupervisor() (*handle, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("starting supervisor: %w", err)
	}
	defer func() { _ = null.Close() }() // the supervisor has its copy
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("starting supervisor: %w", err)
	}
	defer func() { _ = theirs.Close() }() // as above
	// /proc/self/exe is this binary even if an upgrade has replaced the file.
	// One CPU is enough, and limits the runtime's threads.
	process, err := os.StartProcess("/proc/self/exe", []string{supervisorName}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{supervisorMark, "GOMAXPROCS=1"},
		Files: []*os.File{null, null, null, theirs},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = conn.Close() // nothing was written
		return nil, fmt.Errorf("starting supervisor: %w", err)
	}
	h := &handle{process: process, conn: conn, reports: gob.NewDecoder(conn)}
	h.orders = gob.NewEncoder(&h.buf)
	return h, nil
}

// socketPair returns two connected sockets: the worker's, and the supervisor's,
// which blocks.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("creating sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "supervisor")
	file := os.NewFile(uintptr(fds[0]), "orders")
	conn, err := net.FileConn(file) // has a copy of the descriptor
	_ = file.Close()                // nothing was written
	if err != nil {
		_ = theirs.Close() // as above
		return nil, nil, fmt.Errorf("creating sockets: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil //nolint:forcetypeassert,errcheck // created as one
}

// run runs one program, and returns when its whole tree is gone.
func (h *handle) run(ctx context.Context, r *run) (Exit, error) {
	h.usable = false
	h.begin()
	endRenewals := h.renew(r.spec.Lease)
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		h.stop(max(r.spec.KillGrace, 0), r.limit)
	})
	rep, err := h.exchange(r)
	endRenewals()
	if !keep() {
		<-stopped
		_ = h.conn.SetDeadline(time.Time{}) // for the next program; a closed connection is noticed then
		if errors.Is(err, errNotReceived) {
			err = errLost // the order that it had not read may be the stop
		}
	}
	switch {
	case errors.Is(err, errNotSent):
		h.usable = true
		return Exit{}, fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
	case err != nil:
		return Exit{}, h.lost(ctx, r, err)
	case rep.StartFailure != nil:
		h.usable = !rep.Leaving
		return Exit{}, r.startError(rep.StartFailure)
	case rep.Exit == nil:
		return Exit{}, h.lost(ctx, r, errors.New(rep.Error))
	}
	h.usable = !rep.Leaving
	if rep.Exit.Expired {
		return rep.Exit.Exit, fmt.Errorf("program stopped: %w", ErrLeaseEnded)
	}
	if rep.Exit.Stopped && ctx.Err() != nil {
		return rep.Exit.Exit, fmt.Errorf("program stopped: %w", context.Cause(ctx))
	}
	return rep.Exit.Exit, nil
}

// renew tells the supervisor each renewal of a lease, until the returned function is called,
// which waits. Without a lease there is nothing to tell.
func (h *handle) renew(l *Lease) (end func()) {
	if l == nil {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			until, renewed := l.current()
			_ = h.send(order{Renew: &renewOrder{EndBefore: until}}, nil) // a lost supervisor is noticed by exchange
			select {
			case <-renewed:
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// begin prepares for the next program.
func (h *handle) begin() {
	h.sending.Lock()
	defer h.sending.Unlock()
	h.sent, h.stopped = false, false
}

// exchange sends the order to start, and receives the report.
func (h *handle) exchange(r *run) (report, error) {
	err := h.send(order{Start: r.start}, r.streams)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report{}, ErrStuck
	case errors.Is(err, errNotSent):
		return report{}, err
	case err != nil:
		return report{}, errNotReceived
	}
	var rep report
	err = h.reports.Decode(&rep)
	switch {
	case err == nil:
		return rep, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report{}, ErrStuck
	case errors.Is(err, syscall.ECONNRESET): // unix(7): bytes of ours were not read
		return report{}, errNotReceived
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return report{}, errLost
	}
	return report{}, err
}

// send sends one order, with the program's streams if they are not nil.
func (h *handle) send(o order, streams *stdio) error {
	h.sending.Lock()
	defer h.sending.Unlock()
	// A stop must not arrive before its program's start: the supervisor would
	// ignore it.
	switch {
	case o.Stop != nil && !h.sent:
		h.stopped = true
		return nil
	case o.Start != nil && h.stopped:
		return errNotSent
	case o.Renew != nil && !h.sent:
		return nil // the start has the end of the lease
	case o.Start != nil:
		h.sent = true
	}
	h.buf.Reset()
	if err := h.orders.Encode(o); err != nil {
		return err
	}
	rest := h.buf.Bytes()
	if streams != nil {
		n, _, err := h.conn.WriteMsgUnix(rest, unix.UnixRights(streams.child[:]...), nil)
		if err != nil {
			return err
		}
		if rest = rest[n:]; len(rest) == 0 {
			// Everything was sent. Even a write of nothing would fail if the
			// supervisor has received it, started the program and died since.
			return nil
		}
	}
	_, err := h.conn.Write(rest)
	return err
}

// stop orders the supervisor to stop its program. If there is no report in
// time, the connection fails.
func (h *handle) stop(grace, limit time.Duration) {
	// First, because the order to start may still be being written.
	_ = h.conn.SetDeadline(time.Now().Add(grace + limit))  // fails only if it is closed
	_ = h.send(order{Stop: &stopOrder{Grace: grace}}, nil) // a lost supervisor is noticed by exchange
}

// lost kills a supervisor that has failed, with its tree.
func (h *handle) lost(ctx context.Context, r *run, cause error) error {
	_ = h.process.Kill()
	// The supervisor's pid is not reused before Wait, so the search for
	// leftovers cannot hit other processes.
	if !errors.Is(cause, errNotReceived) {
		_ = r.start.User.Do(func() error { // the environment of a process is a file of its user
			killLeftovers(h.process.Pid, r.spec.Env)
			return nil
		})
	}
	err := error(&SupervisorError{Started: !errors.Is(cause, errNotReceived), Err: cause})
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return err
}

// end ends the supervisor, which runs no program, and waits for its end.
func (h *handle) end() {
	_ = h.conn.Close()      // nothing is unsent
	_ = h.process.Kill()    // it may be stopped
	_, _ = h.process.Wait() // its state does not matter
}

// startError returns why the kernel did not start the program.
func (r *run) startError(failure *startFailure) error {
	if failure.TooLate {
		return ErrTooLate
	}
	if failure.Errno != 0 {
		var failed error
		_ = r.start.User.Do(func() error {
			failed = explainExec(r.start, syscall.Errno(failure.Errno))
			return nil
		})
		return failed
	}
	return &StartError{Path: r.start.Path, Err: errors.New(failure.Text)}
}
