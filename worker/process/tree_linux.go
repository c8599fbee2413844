package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// freezeRounds bounds how often one pass searches for processes that were
	// created during the search before. If a tree grows faster, its known
	// processes are killed before the next pass.
	freezeRounds = 10

	// Bounds of the time to wait for SIGCHLD before the next pass: only direct
	// children send it.
	minPoll = 2 * time.Millisecond
	maxPoll = 100 * time.Millisecond
)

// terminateTree sends SIGTERM to all processes of the tree. It continues
// stopped ones, which could not handle it otherwise.
func (s *supervisor) terminateTree() {
	procs, _, err := allProcs()
	if err != nil {
		return // killTree tries again after the grace
	}
	for _, p := range descendants(procs, os.Getpid()) {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT)
	}
}

// killTree kills until wait4 reports that no child is left. Orphans become
// children of this process, so the tree is gone then. It blocks while a process
// is in an uninterruptible wait.
func (s *supervisor) killTree() {
	s.killing = true
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		if s.main != 0 {
			_ = unix.Kill(-s.main, unix.SIGKILL) // not reaped yet, so the pid is not reused
		}
		tree := freezeTree()
		for _, p := range tree {
			p.signal(unix.SIGKILL)
		}
		if s.reapFor(pause) {
			return
		}
	}
}

// reapFor reaps until pause has passed or no child is left.
func (s *supervisor) reapFor(pause time.Duration) (gone bool) {
	for end := time.Now().Add(pause); ; {
		if s.reap() {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		limit := unix.NsecToTimespec(min(left, blindInterval).Nanoseconds())
		_, _ = unix.Ppoll(nil, &limit, nil) // the end of a child interrupts it
	}
}

// freezeTree stops and returns all processes of the tree. A stopped process
// cannot fork, so a round that finds no new process has found all. Killing
// immediately instead would let a parent notice the death of its child and
// start another while the list is read.
func freezeTree() map[int]proc {
	self := os.Getpid()
	frozen := make(map[int]proc)
	groups := map[int]bool{self: true} // the supervisor's own group must not be stopped
	for range freezeRounds {
		procs, _, err := allProcs()
		if err != nil {
			return frozen
		}
		found := false
		for _, p := range descendants(procs, self) {
			if known, ok := frozen[p.pid]; ok && known.start == p.start {
				continue
			}
			found = true
			frozen[p.pid] = p
			if !groups[p.pgid] {
				// A signal to a group also reaches concurrent forks. A group
				// with a process of the tree contains only processes of the
				// tree.
				groups[p.pgid] = true
				_ = unix.Kill(-p.pgid, unix.SIGSTOP)
			}
			p.signal(unix.SIGSTOP) // it may have changed its group meanwhile
		}
		if !found {
			break
		}
	}
	return frozen
}

// oomKills returns the number of processes that the kernel has killed because
// memory was exhausted since boot, or 0 if unknown.
func oomKills() uint64 {
	stat, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(stat, []byte("\noom_kill "))
	if !found {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	count, _ := strconv.ParseUint(string(line), 10, 64)
	return count
}
