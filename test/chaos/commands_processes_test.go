package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dtask/dtask/test/cluster"
)

// supervisorName is the name of a supervisor in /proc.
const supervisorName = "dtask-supervise"

// awaitGone waits until a search finds no process.
func (r *commandsRun) awaitGone(ctx context.Context, what string, search func() []int) error {
	return cluster.Until(ctx, what, goneLimit, func(context.Context) error {
		if left := search(); len(left) > 0 {
			return fmt.Errorf("%d processes remain: %s", len(left), describe(left))
		}
		return nil
	})
}

// processes returns all processes of commands.
func (r *commandsRun) processes() []int { return cluster.ProcessesWith(markVariable + "=" + r.mark) }

// orphans returns the processes of commands that have no supervisor: it was killed,
// and their worker kills them.
func (r *commandsRun) orphans() []int {
	return slices.DeleteFunc(r.processes(), func(pid int) bool {
		for pid > 1 {
			if isSupervisor(pid) {
				return true
			}
			pid = parentOf(pid)
		}
		return false
	})
}

// supervisors returns all supervisors that run the worker's program of this test.
func (r *commandsRun) supervisors() []int {
	program, err := filepath.EvalSymlinks(r.c.Programs.Path("dtask-worker"))
	if err != nil {
		return []int{0}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is right
	var found []int
	for _, link := range links {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if path, err := os.Readlink(link); err == nil && path == program && isSupervisor(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// childrenOf returns the children of a process.
func childrenOf(pid int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	var children []int
	for _, list := range lists {
		text, _ := os.ReadFile(list) // one that is missing has ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}

// supervisorsOf returns the supervisors that a worker has at this moment.
func supervisorsOf(w *cluster.Worker) []int {
	return slices.DeleteFunc(childrenOf(w.Pid()), func(pid int) bool { return !isSupervisor(pid) })
}

// signalChild sends a signal to a process, but only if it is a supervisor of that
// worker: a handle is taken first, so that no other process with the same number is
// hit. It reports whether the process existed.
func signalChild(w *cluster.Worker, pid int, signal syscall.Signal) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }() // always nil
	return isSupervisor(pid) && parentOf(pid) == w.Pid() && process.Signal(signal) == nil
}

// isSupervisor reports whether a process is a supervisor that has not ended.
func isSupervisor(pid int) bool {
	name, state, _ := statOf(pid)
	return name == supervisorName && state != "Z" && state != "X"
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	_, _, parent := statOf(pid)
	return parent
}

// statOf returns the name, the state and the parent of a process. They are empty if
// it does not exist.
func statOf(pid int) (name, state string, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // one that is missing has ended
	start, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if start < 0 || end < start {
		return "", "", 0
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 2 {
		return "", "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return string(text[start+1 : end]), fields[0], parent
}

// describe shows processes in messages.
func describe(pids []int) string {
	var lines []string
	for _, pid := range pids[:min(len(pids), 10)] {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		head, _, _ := bytes.Cut(status, []byte("\nTracerPid"))
		lines = append(lines, fmt.Sprintf("%q %.60q", head, command))
	}
	return strings.Join(lines, "; ")
}
