package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: the kernel shows 100 a second everywhere.
const tick = 10 * time.Millisecond

// cpuOf is the user and system time of a process so far, or an error if that
// is unknown.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the times of process %d: %w", pid, err)
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // numbers in proc(5), which begin with the pid, less those cut off
	if len(fields) <= system {
		return 0, fmt.Errorf("reading the times of process %d: %q has too few fields", pid, text)
	}
	total := time.Duration(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the times of process %d: %w", pid, err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}
