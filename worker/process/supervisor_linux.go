package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process is a supervisor if it has both a name that only the worker sets,
// and a variable, so that neither a renamed binary nor a leaked variable
// creates one.
const (
	supervisorName = "dtask-supervise"
	supervisorMark = "DTASK_SUPERVISOR=1"
)

// File descriptors of a supervisor. Its own standard streams are /dev/null: the
// trace of a crash must not become part of the program's output.
const (
	fdOrders = iota + 3
	fdReports
	fdStdin
	fdStdout
	fdStderr
)

// supervisorReady records that RunSupervisor was called. It is a package
// variable because it is a property of the whole program.
var supervisorReady atomic.Bool

// RunSupervisor turns this process into a supervisor if it was started as one,
// and then never returns. It must be called first in main, and in TestMain of
// packages whose tests run programs: code before it is executed again for each
// program that is run.
func RunSupervisor() {
	supervisorReady.Store(true)
	if os.Args[0] != supervisorName || os.Getenv("DTASK_SUPERVISOR") != "1" {
		return
	}
	// The kernel sends the program's parent-death signal when the thread that
	// forked it ends, so this thread must last as long as the supervisor.
	runtime.LockOSThread()
	supervise(os.NewFile(fdOrders, "orders"), os.NewFile(fdReports, "reports"))
	// There is nothing to flush. os.Exit would wait for a second in a race
	// build.
	syscall.Exit(0)
}

// Ready returns [ErrNoSupervisor] unless [RunSupervisor] was called in this
// process.
func Ready() error {
	if !supervisorReady.Load() {
		return ErrNoSupervisor
	}
	return nil
}

// A supervisor runs one program, and kills the rest of its process tree when
// the program ends. All fields belong to its main goroutine.
type supervisor struct {
	reports *json.Encoder
	orders  <-chan order     // closed when the worker is gone
	child   <-chan os.Signal // at least one child has ended since the last reap

	main    int    // pid of the program; 0 after it was reaped
	oomKill uint64 // the machine's counter at the start
	out     exitReport
	killing bool // SIGKILL has been sent by the supervisor, not by the kernel
}

// supervise runs a supervisor from start to end.
func supervise(orders, reports *os.File) {
	s := &supervisor{reports: json.NewEncoder(reports)}
	child := make(chan os.Signal, 1)
	s.child = child
	if err := isolate(child); err != nil {
		s.report(report{Error: err.Error()})
		return
	}
	s.orders = readOrders(orders)
	first, ok := <-s.orders
	if !ok || first.Start == nil {
		return // the worker died before it sent an order
	}
	if failure := s.start(first.Start); failure != nil {
		s.report(report{StartFailure: failure})
		return
	}
	s.report(report{Started: true})
	s.watch()
	s.report(report{Exit: &s.out})
}

// report sends a report to the worker. If the worker is gone, the closed orders
// pipe ends the tree.
func (s *supervisor) report(r report) { _ = s.reports.Encode(r) }

// readOrders starts the supervisor's second goroutine, which ends with the pipe
// or the process.
func readOrders(from *os.File) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		dec := json.NewDecoder(from)
		for {
			var o order
			if dec.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// isolate sets the signal handling, limits and privileges of a supervisor.
func isolate(child chan<- os.Signal) error {
	// Catching all signals has two effects: only SIGKILL and SIGSTOP end or
	// stop the supervisor, and the program gets the default disposition for all
	// signals, even for those that the parent of the worker (nohup, a shell's
	// &) ignored.
	signal.Notify(make(chan os.Signal, 1))
	signal.Notify(child, unix.SIGCHLD)

	// File descriptors that the worker inherited must not reach the program.
	if err := unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := fdOrders; fd <= fdStderr; fd++ {
			unix.CloseOnExec(fd) // on a kernel before 5.11: at least the supervisor's own
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a subreaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("disabling core files: %w", err)
	}
	unix.Umask(0o077)
	// For ps, which would show "exe". An error has no other effect.
	_ = os.WriteFile("/proc/self/comm", []byte(supervisorName), 0)
	return nil
}

// start forks the program and closes the supervisor's copies of its streams, so
// that their readers see the end when the tree is gone.
func (s *supervisor) start(o *startOrder) *startFailure {
	s.oomKill = oomKills()
	// Last, because this process or the worker may have been stopped until now.
	if o.StartBefore != 0 && Monotonic() >= o.StartBefore {
		return &startFailure{TooLate: true}
	}
	pid, err := syscall.ForkExec(string(o.Path), toStrings(o.Argv), &syscall.ProcAttr{ //nolint:gosec // running programs is its purpose
		Dir:   string(o.Dir),
		Env:   toStrings(o.Env),
		Files: []uintptr{fdStdin, fdStdout, fdStderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL},
	})
	for fd := fdStdin; fd <= fdStderr; fd++ {
		_ = unix.Close(fd)
	}
	if err != nil {
		failure := &startFailure{Text: err.Error()}
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			failure.Errno = int(errno)
		}
		return failure
	}
	s.main = pid
	return nil
}

// watch returns when no process of the tree is left.
func (s *supervisor) watch() {
	var grace <-chan time.Time
	for {
		switch gone := s.reap(); {
		case gone:
			return
		case s.main == 0 && !s.out.Stopped:
			s.killTree() // the program has ended by itself; the rest of its tree must end, too
			return
		}
		select {
		case <-s.child:
		case o, ok := <-s.orders:
			if s.reap() || s.main == 0 && !s.out.Stopped {
				continue // it ended before the order arrived
			}
			if !ok || o.Stop == nil || o.Stop.Grace <= 0 {
				s.out.Stopped = true
				s.killTree()
				return
			}
			if !s.out.Stopped {
				s.out.Stopped = true
				s.terminateTree()
				grace = time.After(o.Stop.Grace)
			}
		case <-grace:
			s.killTree()
			return
		}
	}
}

// reap reaps all children that have ended, and reports whether none is left.
func (s *supervisor) reap() (gone bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ECHILD
			return true
		case pid == 0:
			return false
		}
		if pid == s.main {
			s.main = 0
			s.ended(status)
		}
	}
}

// ended records how the program itself ended.
func (s *supervisor) ended(status unix.WaitStatus) {
	exit := &s.out.Exit
	if !status.Signaled() {
		exit.Code = status.ExitStatus()
		return
	}
	exit.Code = -1
	exit.Signal = signalName(status.Signal())
	exit.OOM = status.Signal() == unix.SIGKILL && !s.killing && oomKills() > s.oomKill
}

// signalName returns the name of sig, or its number for real-time signals.
func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}
