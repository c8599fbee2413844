package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// A proc is one process, as read from /proc.
type proc struct {
	pid, ppid, pgid, session int
	state                    byte   // as in ps; Z is dead and not reaped
	start                    uint64 // clock ticks since boot: distinguishes two uses of one pid
}

// allProcs reads all processes, highest pid first: those are usually the
// youngest, and a tree that forks continuously can only be stopped at its
// growing end. The list is incomplete if a process has ended while it was read.
func allProcs() (procs []proc, complete bool, err error) {
	pids, err := allPids()
	if err != nil {
		return nil, false, err
	}
	procs, complete = readProcs(pids)
	return procs, complete, nil
}

// allPids returns the pids of all processes, in the kernel's order, which is
// ascending.
func allPids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close() // only read
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// readProcs reads these processes, the last one first, and reports whether all
// of them exist.
func readProcs(pids []int) (procs []proc, complete bool) {
	procs, complete = make([]proc, 0, len(pids)), true
	buf := make([]byte, 1024)
	for _, pid := range slices.Backward(pids) {
		p, ok := readProc(pid, buf)
		if !ok {
			complete = false
			continue
		}
		procs = append(procs, p)
	}
	return procs, complete
}

// readProc reads one process; it returns false if the process does not exist.
// buf is scratch space.
func readProc(pid int, buf []byte) (proc, bool) {
	n, _ := readProcFile(pid, "stat", buf) // no bytes after an error
	// The name in parentheses may contain parentheses and spaces.
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

// readProcFile reads /proc/<pid>/<name> into buf and returns the bytes read, 0
// with an error. It uses system calls directly: it runs once for each process
// of the machine, and os.File would double the number of calls.
func readProcFile(pid int, name string, buf []byte) (int, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Read(fd, buf)
	return max(n, 0), err
}

// descendants returns all live processes of procs that descend from root,
// without root.
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
		delete(children, parent) // prevents loops: the list is not a consistent snapshot
	}
	return tree
}

// signal sends sig to p and to no other process: it opens a handle first and
// then compares the start time, so that it cannot hit a reused pid.
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
	// An error means that the process is gone, or must not be signaled; the
	// caller reads the tree again in either case.
	if handle {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		return
	}
	_ = unix.Kill(p.pid, sig)
}
