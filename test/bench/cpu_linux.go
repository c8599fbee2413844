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

// cpuOf returns the user and system time of a process so far, or an error if it is
// unknown.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading times of process %d: %w", pid, err)
	}
	// The program name, in parentheses, may contain any character.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // numbers in proc(5), which begin with the pid, less those cut off
	if len(fields) <= system {
		return 0, fmt.Errorf("reading times of process %d: %q has too few fields", pid, text)
	}
	total := time.Duration(0)
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading times of process %d: %w", pid, err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}
