package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A proc is one process as /proc showed it.
type proc struct {
	pid, ppid, pgid, session int
	state                    byte   // as in ps; Z is dead and not yet waited for
	start                    uint64 // clock ticks since boot: tells two uses of one pid apart
}

// allProcs reads every process, those with the highest pid first: they tend to
// be the youngest, and a tree that forks as fast as it can is caught at its
// growing end or not at all.
func allProcs() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // only read
	if err != nil {
		return nil, err
	}
	procs := make([]proc, 0, len(names))
	buf := make([]byte, 1024)
	for _, name := range slices.Backward(names) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid, buf); ok {
			procs = append(procs, p)
		}
	}
	return procs, nil
}

// readProc reads one process; false means that there is none. buf is scratch.
func readProc(pid int, buf []byte) (proc, bool) {
	n := readProcFile(pid, "stat", buf)
	// The name in brackets may hold anything, brackets and spaces too.
	end := bytes.LastIndexByte(buf[:n], ')')
	if end < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(buf[end+1 : n])
	const startTime = 19 // field 22 of proc_pid_stat(5), counted from the state
	if len(fields) <= startTime {
		return proc{}, false
	}
	p := proc{pid: pid, state: fields[0][0]}
	p.ppid, _ = strconv.Atoi(string(fields[1]))
	p.pgid, _ = strconv.Atoi(string(fields[2]))
	p.session, _ = strconv.Atoi(string(fields[3]))
	p.start, _ = strconv.ParseUint(string(fields[startTime]), 10, 64)
	return p, true
}

// readProcFile fills buf from /proc/<pid>/<name> and returns the bytes read, zero
// if it cannot be read. It uses bare system calls: it runs once per process of
// the machine, and os.File would double the calls.
func readProcFile(pid int, name string, buf []byte) int {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0
	}
	return n
}

// descendants are the live processes of procs whose line of parents leads to
// root; root itself is not among them.
func descendants(procs []proc, root int) []proc {
	children := make(map[int][]proc)
	for _, p := range procs {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var tree []proc
	queue := []int{root}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for _, p := range children[parent] {
			if p.state != 'Z' {
				tree = append(tree, p)
			}
			queue = append(queue, p.pid)
		}
		delete(children, parent) // the list was not read in one instant: no loops
	}
	return tree
}

// signal sends sig to p and to nobody else: the handle is opened first and the
// start time compared after it, so a pid that was reused meanwhile is spared.
func (p proc) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	handle := err == nil // otherwise the kernel is too old or a sandbox forbids it
	if handle {
		defer func() { _ = unix.Close(fd) }()
	}
	now, ok := readProc(p.pid, make([]byte, 1024))
	if !ok || now.start != p.start {
		return
	}
	// An error means that it is gone, or not ours to signal; the caller looks at
	// the tree again either way.
	if handle {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		return
	}
	_ = unix.Kill(p.pid, sig)
}
