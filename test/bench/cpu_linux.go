package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
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

// childrenCPU returns the user and system time of all descendants of a process that have
// ended.
func childrenCPU(pid int) (time.Duration, error) { return timesOf(pid, childrenTime) }

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
