package process

import (
	"encoding/gob"
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

// fdWorker is a supervisor's socket, whose other end is the worker's. Its own
// standard streams are /dev/null: the trace of a crash must not become part of
// a program's output.
const fdWorker = 3

// supervisorReady records that RunSupervisor was called. It is a package
// variable because it is a property of the whole program.
var supervisorReady atomic.Bool

// RunSupervisor turns this process into a supervisor if it was started as one,
// and then never returns. It must be called first in main, and in TestMain of
// packages whose tests run programs: code before it is executed again for each
// supervisor.
func RunSupervisor() {
	supervisorReady.Store(true)
	if os.Args[0] != supervisorName || os.Getenv("DTASK_SUPERVISOR") != "1" {
		return
	}
	// The kernel sends the program's parent-death signal when the thread that
	// forked it ends, so this thread must last as long as the supervisor.
	runtime.LockOSThread()
	supervise()
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

// A supervisor runs one program after another, and kills the rest of each one's
// process tree when the program ends. All fields belong to its only goroutine.
type supervisor struct {
	inbox   *inbox
	orders  *gob.Decoder // of inbox
	reports *gob.Encoder
	initial attributes // of this process, before the first program
	oomKill uint64     // the machine's counter at some time before the program could be killed
	bare    bool       // disinherit has succeeded: all programs are those of another user

	execution
}

// An execution is that of the program that a supervisor runs.
type execution struct {
	main    int // pid; 0 after it was reaped
	pidfd   int // of main; -1 if it has none
	began   time.Time
	settled bool // it has run for settleTime, and oomKill was read then
	stopped bool // the stop order arrived, or the worker is gone
	killing bool // SIGKILL has been sent by the supervisor, not by the kernel
	exit    Exit

	endBefore time.Duration // the end of its lease; 0 = none
	expired   bool          // that has come
}

// Bounds of the time to wait for an event. The end of a child interrupts the
// wait; if it comes immediately before, it is noticed by the program's pidfd,
// or else at the end of the wait.
const (
	// settleTime is how long a program runs before the machine's counter of
	// killed processes is read for it: that would cost short ones too much.
	settleTime = 10 * time.Millisecond
	// orphanInterval bounds how long an orphan that has ended is not reaped.
	orphanInterval = 5 * time.Second
	// blindInterval is for waits without a pidfd.
	blindInterval = 10 * time.Millisecond
)

// supervise runs a supervisor from start to end.
func supervise() {
	in := &inbox{fd: fdWorker}
	s := &supervisor{inbox: in, orders: gob.NewDecoder(in), reports: gob.NewEncoder(os.NewFile(fdWorker, "worker"))}
	if err := isolate(); err != nil {
		_ = s.reports.Encode(report{Error: err.Error(), Leaving: true}) // the worker notices the end, too
		return
	}
	s.initial, s.oomKill = currentAttributes(), oomKills()
	for {
		var o order
		if s.orders.Decode(&o) != nil {
			return // the worker needs no further program, or is gone
		}
		if o.Start == nil {
			continue // a stop that came too late
		}
		rep := s.run(o.Start)
		rep.Leaving = currentAttributes() != s.initial
		if s.reports.Encode(rep) != nil || rep.Leaving {
			return
		}
	}
}

// run runs one program, and returns when no process of its tree is left.
func (s *supervisor) run(o *startOrder) report {
	s.execution = execution{pidfd: -1}
	s.endBefore = o.EndBefore
	if failure := s.start(o); failure != nil {
		return report{StartFailure: failure}
	}
	s.watch()
	s.closePidfd()
	return report{Exit: &exitReport{Exit: s.exit, Stopped: s.stopped, Expired: s.expired}}
}

// isolate sets the signal handling, limits and privileges of a supervisor.
func isolate() error {
	// Catching all signals has two effects: only SIGKILL and SIGSTOP end or
	// stop the supervisor, and the program gets the default disposition for all
	// signals, even for those that the parent of the worker (nohup, a shell's
	// &) ignored. SIGCHLD and SIGURG, which is the runtime's, have a handler
	// anyway, and are frequent.
	caught := make([]os.Signal, 0, 64)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig != unix.SIGCHLD && sig != unix.SIGURG {
			caught = append(caught, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), caught...)

	// File descriptors that the worker inherited must not reach the program.
	if err := unix.CloseRange(fdWorker, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(fdWorker) // on a kernel before 5.11: at least the supervisor's own
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
	// For ps, which would show "exe". An error has no other effect.
	_ = os.WriteFile("/proc/self/comm", []byte(supervisorName), 0)
	return nil
}

// start forks the program and closes the supervisor's copies of its streams, so
// that their readers see the end when the tree is gone.
func (s *supervisor) start(o *startOrder) *startFailure {
	streams := s.inbox.takeFiles()
	defer closeAll(streams)
	if len(streams) != 3 {
		return &startFailure{Text: fmt.Sprintf("received %d of 3 standard streams", len(streams)), Errno: int(unix.EMFILE)}
	}
	attributes := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, PidFD: &s.pidfd}
	if o.User != nil {
		if !s.bare {
			if err := disinherit(); err != nil {
				return &startFailure{Text: err.Error()}
			}
			s.bare = true
		}
		attributes.Credential = o.User.credential()
	}
	// Last, because this process or the worker may have been stopped until now.
	if o.StartBefore != 0 && Monotonic() >= o.StartBefore {
		return &startFailure{TooLate: true}
	}
	if s.leaseEnded() {
		return &startFailure{TooLate: true}
	}
	unix.Umask(o.Umask)                                             // the program inherits it
	pid, err := syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{ //nolint:gosec // running programs is its purpose
		Dir:   o.Dir,
		Env:   o.Env,
		Files: streams,
		Sys:   attributes,
	})
	if err != nil {
		failure := &startFailure{Text: err.Error()}
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			failure.Errno = int(errno)
		}
		return failure
	}
	s.main, s.began = pid, time.Now()
	return nil
}

// watch returns when no process of the tree is left.
func (s *supervisor) watch() {
	var killAt time.Time // end of the grace; zero before a stop
	for {
		switch gone := s.reap(); {
		case gone:
			return
		case s.main == 0 && !s.stopped:
			s.killTree() // the program has ended by itself; the rest of its tree must end, too
			return
		case s.leaseEnded():
			s.expired = true
			s.killTree()
			return
		case s.stopped && !time.Now().Before(killAt):
			s.killTree()
			return
		case !s.settled && time.Since(s.began) >= settleTime:
			s.settle()
			continue
		}
		if !s.await(s.pause(killAt)) {
			continue
		}
		o, ok := s.nextOrder()
		if s.reap() || s.main == 0 && !s.stopped {
			continue // it ended before the order arrived
		}
		if ok && o.Renew != nil {
			s.endBefore = o.Renew.EndBefore
			continue
		}
		if !ok || o.Stop == nil || o.Stop.Grace <= 0 {
			s.stopped = true
			s.killTree()
			return
		}
		if !s.stopped {
			s.stopped = true
			s.terminateTree()
			killAt = time.Now().Add(o.Stop.Grace)
		}
	}
}

// leaseEnded reports whether the program must not run any longer. The worker may be stopped,
// and unable to end it.
func (s *supervisor) leaseEnded() bool { return s.endBefore != 0 && Monotonic() >= s.endBefore }

// nextOrder receives an order. It returns false if the worker is gone.
func (s *supervisor) nextOrder() (o order, ok bool) {
	err := s.orders.Decode(&o)
	return o, err == nil
}

// pause returns how long to wait for the next event.
func (s *supervisor) pause(killAt time.Time) time.Duration {
	pause := orphanInterval
	switch {
	case s.stopped: // the program may have ended, so that only the end of orphans is awaited
		pause = min(blindInterval, time.Until(killAt))
	case !s.settled:
		pause = settleTime - time.Since(s.began)
	case s.pidfd < 0:
		pause = blindInterval
	}
	if s.endBefore != 0 {
		pause = min(pause, s.endBefore-Monotonic())
	}
	return max(pause, time.Millisecond)
}

// await waits for the end of the program, another child's end, or an order, and
// reports whether an order has arrived.
func (s *supervisor) await(pause time.Duration) (ordered bool) {
	if s.inbox.buffered() {
		return true
	}
	fds := []unix.PollFd{{Fd: fdWorker, Events: unix.POLLIN}, {Fd: int32(s.pidfd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	limit := unix.NsecToTimespec(pause.Nanoseconds())
	// It is interrupted when a child ends.
	n, err := unix.Ppoll(fds, &limit, nil)
	return err == nil && n > 0 && fds[0].Revents != 0
}

// settle reads the machine's counter of killed processes for a program that has
// run for a while. The earlier value counts if it has ended meanwhile.
func (s *supervisor) settle() {
	s.settled = true
	count := oomKills()
	if s.reap(); s.main != 0 {
		s.oomKill = count
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
			s.closePidfd() // it would be ready in each further wait
			s.ended(status)
		}
	}
}

func (s *supervisor) closePidfd() {
	if s.pidfd >= 0 {
		_ = unix.Close(s.pidfd) // nothing was written
		s.pidfd = -1
	}
}

// ended records how the program itself ended.
func (s *supervisor) ended(status unix.WaitStatus) {
	exit := &s.exit
	if !status.Signaled() {
		exit.Code = status.ExitStatus()
		return
	}
	exit.Code = -1
	exit.Signal = signalName(status.Signal())
	if status.Signal() == unix.SIGKILL && !s.killing {
		count := oomKills()
		exit.OOM, s.oomKill = count > s.oomKill, count
	}
}

// signalName returns the name of sig, or its number for real-time signals.
func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}
