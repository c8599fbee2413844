package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leftoverLimit bounds the search after a supervisor was lost. A process in
	// an uninterruptible wait has received SIGKILL by then, and dies when the
	// wait ends.
	leftoverLimit    = 5 * time.Second
	leftoverInterval = 5 * time.Millisecond
	// leftoverPasses is how often the processes are searched at most after none
	// was found, if some were not certain.
	leftoverPasses = 10
	environLimit   = 256 << 10 // bytes of an environment to read: more than a job may set

	// executionVar identifies the attempt that a process belongs to.
	executionVar = "DTASK_EXECUTION_ID="
)

// killLeftovers kills the tree of a supervisor that died. The orphans are
// children of init now. They are recognized by the supervisor's session, which
// no other process can join, or, if they left it, by the attempt's own variable
// in their environment.
func killLeftovers(session int, env []string) {
	var mark []byte
	for _, entry := range env {
		if strings.HasPrefix(entry, executionVar) && len(entry) > len(executionVar) {
			mark = []byte("\x00" + entry + "\x00")
		}
	}
	// One byte more, so that a NUL precedes the first entry, too.
	buf := make([]byte, 1+environLimit)
	deadline := time.Now().Add(leftoverLimit)
	for passes := leftoverPasses; passes > 0 && time.Now().Before(deadline); passes-- {
		// A process that ends while it is looked at may have forked one that is
		// not in the list.
		procs, complete, err := allProcs()
		if err != nil {
			return
		}
		found := false
		for _, p := range procs {
			if p.state == 'Z' || p.session == 0 || p.pid == session || p.pid == os.Getpid() {
				complete = complete && (p.state != 'Z' || p.pid == session)
				continue // among others, threads of the kernel have no session
			}
			marked, certain := hasEnv(p.pid, mark, buf)
			complete = complete && certain
			switch {
			case p.session == session && p.pgid > 1:
				// A signal to the group also reaches a process that is being
				// forked. Only processes of the session can be in it.
				_ = unix.Kill(-p.pgid, unix.SIGKILL)
			case !marked:
				continue
			}
			found = true
			p.signal(unix.SIGKILL)
		}
		if !found && complete {
			return
		}
		if found {
			passes = leftoverPasses
		}
		<-time.After(leftoverInterval)
	}
}

// hasEnv reports whether a process was started with the entry mark, which
// starts and ends with a NUL byte. That is not certain if the process has ended
// meanwhile, or has no environment, as for a moment when it executes another
// program. An environment that must not be read has no mark. buf is scratch space
// and starts with a NUL byte.
func hasEnv(pid int, mark, buf []byte) (marked, certain bool) {
	if mark == nil {
		return false, true
	}
	n, err := readProcFile(pid, "environ", buf[1:])
	forbidden := errors.Is(err, fs.ErrPermission)
	return bytes.Contains(buf[:n+1], mark), n > 0 || forbidden
}
