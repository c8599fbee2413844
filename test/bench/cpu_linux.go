package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc: the kernel reports 100 per second on all
// platforms.
const tick = 10 * time.Millisecond

// Numbers of times in proc(5), which count from the pid, as fields after the program
// name.
const (
	userTime       = 14 - 3 // and the system time after it
	childrenTime   = 16 - 3 // the same of all children that were waited for, and theirs
	fieldsOfTime   = 2
	lastTimeColumn = childrenTime + fieldsOfTime
)

// cpuOf returns the user and system time of a process so far, or an error if it is
// unknown.
func cpuOf(pid int) (time.Duration, error) { return timesOf(pid, userTime) }

// treeCPU returns the user and system time of a process and of all its descendants, alive
// or ended. A descendant that ends meanwhile may be missing.
func treeCPU(pid int) (total time.Duration, err error) {
	for _, first := range []int{userTime, childrenTime} {
		n, err := timesOf(pid, first)
		if err != nil {
			return 0, err
		}
		total += n
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		text, err := os.ReadFile(list) //nolint:gosec // of the kernel
		if err != nil {
			continue // the thread has ended
		}
		for child := range strings.FieldsSeq(string(text)) {
			number, err := strconv.Atoi(child)
			if err != nil {
				return 0, fmt.Errorf("reading children of process %d: %w", pid, err)
			}
			if n, err := treeCPU(number); err == nil { // else it has ended
				total += n
			}
		}
	}
	return total, nil
}

// queuedOf returns how long the threads of a process have run so far, and how long they were
// ready but waited for a processor, which other processes used.
func queuedOf(pid int) (ran, waited time.Duration, err error) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
	for _, thread := range threads {
		text, err := os.ReadFile(thread) //nolint:gosec // of the kernel
		if err != nil {
			continue // the thread has ended
		}
		var on, queued time.Duration // in ns
		if _, err := fmt.Sscan(string(text), &on, &queued); err != nil {
			return 0, 0, fmt.Errorf("reading times of process %d: %w", pid, err)
		}
		ran, waited = ran+on, waited+queued
	}
	if ran == 0 {
		return 0, 0, fmt.Errorf("reading times of process %d: the system doesn't count them", pid)
	}
	return ran, waited, nil
}

func timesOf(pid, first int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading times of process %d: %w", pid, err)
	}
	// The program name, in parentheses, may contain any character.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < lastTimeColumn {
		return 0, fmt.Errorf("reading times of process %d: %q has too few fields", pid, text)
	}
	total := time.Duration(0)
	for _, field := range fields[first : first+fieldsOfTime] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading times of process %d: %w", pid, err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// residentOf returns the resident memory of a process in MB.
func residentOf(pid int) (float64, error) { return statusOf(pid, "VmRSS:") }

// peakOf returns the most resident memory that a running process has had, in MB. The Maxrss
// of an ended one includes that of its parent before it was executed.
func peakOf(pid int) (float64, error) { return statusOf(pid, "VmHWM:") }

// statusOf returns an amount of memory from proc(5) in MB.
func statusOf(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field); ok {
			kilobytes, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				return 0, fmt.Errorf("reading memory of process %d: %w", pid, err)
			}
			return kilobytes / 1024, nil
		}
	}
	return 0, fmt.Errorf("reading memory of process %d: it has ended", pid)
}

// canPin is whether pin works on this system.
const canPin = true

// pin lets the threads of a process run only on processors first up to but not including end. A
// thread that is made later runs where the one that makes it may run.
func pin(pid, first, end int) error {
	var set unix.CPUSet
	for i := first; i < end; i++ {
		set.Set(i)
	}
	for range 2 { // a thread may be made meanwhile
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is valid
		for _, thread := range threads {
			id, err := strconv.Atoi(filepath.Base(thread))
			if err != nil {
				return fmt.Errorf("reading threads of process %d: %w", pid, err)
			}
			if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("choosing processors for process %d: %w", pid, err)
			}
		}
	}
	return nil
}
