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

// A process is a supervisor if it has both: a name that only the worker gives, and a
// variable, so that neither a renamed binary nor a stray environment makes one.
const (
	supervisorName = "dtask-supervise"
	supervisorMark = "DTASK_SUPERVISOR=1"
)

// File descriptors of a supervisor. Its own standard streams are /dev/null: what a
// crash of it would print does not belong into the program's output.
const (
	fdOrders = iota + 3
	fdReports
	fdStdin
	fdStdout
	fdStderr
)

// keeperReady records that RunSupervisor was called. It is a variable of the package
// since it is a fact about the whole program: what its main does first.
var supervisorReady atomic.Bool

// RunSupervisor turns this process into a supervisor if it was started as one, and then
// never returns. It must be called first in main, and in TestMain of packages
// whose tests run programs: whatever comes before it is done once more for every
// program that is run.
func RunSupervisor() {
	supervisorReady.Store(true)
	if os.Args[0] != supervisorName || os.Getenv("DTASK_SUPERVISOR") != "1" {
		return
	}
	// The program's parent-death signal is sent when the thread that forked it
	// ends, so this thread must last as long as the supervisor.
	runtime.LockOSThread()
	supervise(os.NewFile(fdOrders, "orders"), os.NewFile(fdReports, "reports"))
	// There is nothing to flush and nobody to return to. Not os.Exit: in a race
	// build that waits a second.
	syscall.Exit(0)
}

// Ready returns [ErrNoSupervisor] unless [RunSupervisor] was called in this process.
func Ready() error {
	if !supervisorReady.Load() {
		return ErrNoSupervisor
	}
	return nil
}

// A supervisor runs one program and sees to it that its tree ends with it. All
// fields belong to its main goroutine.
type supervisor struct {
	reports *json.Encoder
	orders  <-chan order     // closed when the worker is gone
	child   <-chan os.Signal // at least one child has ended since the last look

	main    int       // pid of the program; 0 once it was waited for
	began   time.Time // with the monotonic clock
	oomKill uint64    // the machine's counter at the start
	out     exitReport
	killing bool // SIGKILL has been sent: a death by it is not the kernel's doing
}

// keep is the whole life of a supervisor.
func supervise(orders, reports *os.File) {
	k := &supervisor{reports: json.NewEncoder(reports)}
	child := make(chan os.Signal, 1)
	k.child = child
	if err := isolate(child); err != nil {
		k.report(report{Fault: err.Error()})
		return
	}
	k.orders = readOrders(orders)
	first, ok := <-k.orders
	if !ok || first.Start == nil {
		return // the worker died before it said what to run
	}
	if failure := k.start(first.Start); failure != nil {
		k.report(report{StartFailure: failure})
		return
	}
	k.report(report{Started: true})
	k.watch()
	k.report(report{Exit: &k.out})
}

// report tells the worker. If it is gone there is nobody left to tell: the
// orders pipe says so and decides what happens.
func (k *supervisor) report(r report) { _ = k.reports.Encode(r) }

// readOrders starts the supervisor's second goroutine, which ends with the stream or
// with the process.
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

// secludeSelf gives this process what makes it a supervisor.
func isolate(child chan<- os.Signal) error {
	// Catching every signal does two things: none but SIGKILL and SIGSTOP ends
	// or stops the supervisor, and the program gets the default disposition for all,
	// also for those that the worker's own starter (nohup, a shell's &) ignored.
	signal.Notify(make(chan os.Signal, 1))
	signal.Notify(child, unix.SIGCHLD)

	// Whatever the worker was started with and did not open itself stays here.
	if err := unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := fdOrders; fd <= fdStderr; fd++ {
			unix.CloseOnExec(fd) // a kernel before 5.11: at least our own
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a subreaper: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("turning core files off: %w", err)
	}
	unix.Umask(0o077)
	// For whoever reads ps; the name would be "exe". A failure changes nothing.
	_ = os.WriteFile("/proc/self/comm", []byte(supervisorName), 0)
	return nil
}

// start forks the program and drops the supervisor's copies of its streams, so that
// their readers see the end as soon as the tree is gone.
func (k *supervisor) start(o *startOrder) *startFailure {
	k.oomKill = oomKills()
	k.began = time.Now()
	pid, err := syscall.ForkExec(string(o.Path), toStrings(o.Argv), &syscall.ProcAttr{ //nolint:gosec // running what it is told is its purpose
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
	k.main = pid
	k.out.Exit.Started = k.began
	return nil
}

// watch returns when no process of the tree is left.
func (k *supervisor) watch() {
	var grace <-chan time.Time
	for {
		switch gone := k.reap(); {
		case gone:
			return
		case k.main == 0 && !k.out.Stopped:
			k.killTree() // the program has ended by itself; what it left behind goes too
			return
		}
		select {
		case <-k.child:
		case o, ok := <-k.orders:
			if k.reap() || k.main == 0 && !k.out.Stopped {
				continue // it ended before the order came
			}
			if !ok || o.Stop == nil || o.Stop.Grace <= 0 {
				k.out.Stopped = true
				k.killTree()
				return
			}
			if !k.out.Stopped {
				k.out.Stopped = true
				k.terminateTree()
				grace = time.After(o.Stop.Grace)
			}
		case <-grace:
			k.killTree()
			return
		}
	}
}

// reap collects every child that has ended and reports whether none is left.
func (k *supervisor) reap() (gone bool) {
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ECHILD
			return true
		case pid == 0:
			return false
		}
		exit := &k.out.Exit
		exit.UserCPU += time.Duration(usage.Utime.Nano())
		exit.SysCPU += time.Duration(usage.Stime.Nano())
		exit.MaxRSS = max(exit.MaxRSS, int64(usage.Maxrss)*1024) //nolint:unconvert // not an int64 on every platform
		if pid == k.main {
			k.main = 0
			k.ended(status)
		}
	}
}

// ended notes how the program itself ended.
func (k *supervisor) ended(status unix.WaitStatus) {
	exit := &k.out.Exit
	exit.Ended = k.began.Add(time.Since(k.began))
	if !status.Signaled() {
		exit.Code = status.ExitStatus()
		return
	}
	exit.Code = -1
	exit.Signal = signalName(status.Signal())
	exit.OOM = status.Signal() == unix.SIGKILL && !k.killing && oomKills() > k.oomKill
}

// signalName is the name of sig, or its number for real-time signals.
func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig))
}
