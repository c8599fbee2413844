package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// limitKinds is the number of resource limits (RLIM_NLIMITS).
const limitKinds = 16

// attributes are properties of a supervisor that its programs inherit, and that
// a process of the same user can change from outside, such as with prlimit,
// renice and taskset. A program could pass them on to the next that way.
type attributes struct {
	limits     [limitKinds]unix.Rlimit
	priority   int
	processors unix.CPUSet
	oomScore   string
}

// currentAttributes returns those of this process. What cannot be read has the
// zero value.
func currentAttributes() attributes {
	var a attributes
	for kind := range a.limits {
		_ = unix.Prlimit(0, kind, nil, &a.limits[kind])
	}
	a.priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	_ = unix.SchedGetaffinity(0, &a.processors)
	score, _ := os.ReadFile("/proc/self/oom_score_adj")
	a.oomScore = string(score)
	return a
}
