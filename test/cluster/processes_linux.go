package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// ProcessesWith finds the processes of this machine whose environment has
// NAME=VALUE, as KEY=VALUE: tasks get a mark in their env, which all that they
// start inherits, whatever session or group it runs away to.
func ProcessesWith(variable string) []int {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is right
	var pids []int
	for _, path := range environments {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended, or belongs to somebody else
		}
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			if string(entry) == variable {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				if err == nil {
					pids = append(pids, pid)
				}
				break
			}
		}
	}
	return pids
}
