package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// freezeRounds bounds how often one pass looks for processes born during
	// the look before. A tree that grows faster than that is killed as far as
	// it is known, and looked at again.
	freezeRounds = 10

	// How long to wait for a signal of a child's end before looking at the tree
	// again: the children of children send none.
	minPoll = 2 * time.Millisecond
	maxPoll = 100 * time.Millisecond
)

// terminateTree asks every process of the tree to end. Stopped ones are
// continued: they could not hear it otherwise.
func (k *supervisor) terminateTree() {
	procs, err := allProcs()
	if err != nil {
		return // the grace will end, and killTree tries again
	}
	for _, p := range descendants(procs, os.Getpid()) {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT)
	}
}

// killTree kills until wait4 says that no child is left; orphans come to this
// process, so that is when nothing is left. A process in an uninterruptible wait
// keeps it here until the wait ends.
func (k *supervisor) killTree() {
	k.killing = true
	for pause := minPoll; ; pause = min(2*pause, maxPoll) {
		if k.main != 0 {
			_ = unix.Kill(-k.main, unix.SIGKILL) // not waited for yet, so the number is its own
		}
		tree := freezeTree()
		for _, p := range tree {
			p.signal(unix.SIGKILL)
		}
		if k.settle(pause) {
			return
		}
	}
}

// settle reaps for at most pause, or until no child is left.
func (k *supervisor) settle(pause time.Duration) (gone bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if k.reap() {
			return true
		}
		select {
		case <-k.child:
		case <-timer.C:
			return false
		}
	}
}

// freezeTree stops every process of the tree and returns all that it found. A
// stopped process cannot fork, so a round that finds nobody new has found all.
// Killing at once instead would let a parent see its child die and start another
// while the list is being read.
func freezeTree() map[int]proc {
	self := os.Getpid()
	frozen := make(map[int]proc)
	groups := map[int]bool{self: true} // the supervisor's own group is not to be stopped
	for range freezeRounds {
		procs, err := allProcs()
		if err != nil {
			return frozen
		}
		news := false
		for _, p := range descendants(procs, self) {
			if known, ok := frozen[p.pid]; ok && known.start == p.start {
				continue
			}
			news = true
			frozen[p.pid] = p
			if !groups[p.pgid] {
				// The kernel lets no fork slip through a signal to a group. Only
				// processes of the tree can be in one that has any of them.
				groups[p.pgid] = true
				_ = unix.Kill(-p.pgid, unix.SIGSTOP)
			}
			p.signal(unix.SIGSTOP) // it may have changed its group meanwhile
		}
		if !news {
			break
		}
	}
	return frozen
}

// oomKills is the kernel's count of processes killed for want of memory since
// boot, or 0 where it does not say.
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
