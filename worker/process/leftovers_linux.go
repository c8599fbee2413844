package process

import (
	"bytes"
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
	// leftoverPasses is how often a process without any environment is looked
	// at: one that is about to execute another program has none for a moment.
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
		procs, err := allProcs()
		if err != nil {
			return
		}
		found, unknown := false, false
		for _, p := range procs {
			if p.state == 'Z' || p.session == 0 || p.pid == session || p.pid == os.Getpid() {
				continue // among others, threads of the kernel have no session
			}
			marked, empty := hasEnv(p.pid, mark, buf)
			if p.session == session || marked {
				found = true
				p.signal(unix.SIGKILL)
			}
			unknown = unknown || empty
		}
		if !found && !unknown {
			return
		}
		if found {
			passes = leftoverPasses
		}
		<-time.After(leftoverInterval)
	}
}

// hasEnv reports whether a process was started with the entry mark, which
// starts and ends with a NUL byte, and whether it has an empty environment. Both
// are false if the environment cannot be read. buf is scratch space and starts
// with a NUL byte.
func hasEnv(pid int, mark, buf []byte) (marked, empty bool) {
	if mark == nil {
		return false, false
	}
	n, ok := readProcFile(pid, "environ", buf[1:])
	return bytes.Contains(buf[:n+1], mark), ok && n == 0
}
