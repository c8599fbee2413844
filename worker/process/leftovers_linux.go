package process

import (
	"bytes"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leftoverLimit bounds the search after a lost supervisor; what is in an
	// uninterruptible wait by then has its SIGKILL and dies when it wakes.
	leftoverLimit    = 5 * time.Second
	leftoverInterval = 5 * time.Millisecond
	environLimit     = 256 << 10 // bytes of an environment to look at: more than a job may set

	// executionVar names one attempt and no other, wherever it is found.
	executionVar = "DTASK_EXECUTION_ID="
)

// killLeftovers kills what is left of the tree of a supervisor that died without
// doing so. Its orphans have gone to init, so they are known by the supervisor's
// session, which nobody else can enter, or, for those that left it, by the
// attempt's own variable in their environment.
func killLeftovers(session int, env []string) {
	var mark []byte
	for _, entry := range env {
		if strings.HasPrefix(entry, executionVar) && len(entry) > len(executionVar) {
			mark = []byte("\x00" + entry + "\x00")
		}
	}
	// One byte before, so that the first entry has a NUL before it too.
	buf := make([]byte, 1+environLimit)
	deadline := time.Now().Add(leftoverLimit)
	for time.Now().Before(deadline) {
		procs, err := allProcs()
		if err != nil {
			return
		}
		found := false
		for _, p := range procs {
			if p.state == 'Z' || p.pid == session || p.pid == os.Getpid() {
				continue
			}
			if p.session == session || hasEnv(p.pid, mark, buf) {
				found = true
				p.signal(unix.SIGKILL)
			}
		}
		if !found {
			return
		}
		<-time.After(leftoverInterval)
	}
}

// hasEnv reports whether a process was started with the entry mark, which has a
// NUL byte on either side; false if its environment cannot be read. buf is
// scratch and begins with a NUL byte.
func hasEnv(pid int, mark, buf []byte) bool {
	if mark == nil {
		return false
	}
	n := readProcFile(pid, "environ", buf[1:])
	return bytes.Contains(buf[:n+1], mark)
}
