package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dtask/dtask/test/cluster"
)

// memoryGroups is the directory of process groups with a memory limit.
const memoryGroups = "/sys/fs/cgroup/memory"

// oom limits the memory of a replica, so that the kernel kills it.
func oom(ctx context.Context, w *World, _ time.Duration) error {
	some, release, err := w.takeProcesses(ctx, "memory limit", theLeader)
	if err != nil {
		return err
	}
	n := some[0]
	err = outOfMemory(ctx, n)
	return errors.Join(err, w.revive(ctx, release, n))
}

func outOfMemory(ctx context.Context, n *cluster.Coordinator) (err error) {
	group := filepath.Join(memoryGroups, "dtask-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return fmt.Errorf("memory groups are unavailable (%w): %w", err, ErrCannot)
	}
	defer func() {
		// Sometimes a group that was just left can't be removed immediately.
		removed := cluster.Until(context.WithoutCancel(ctx), "the memory group is removed", time.Minute, func(context.Context) error { return os.Remove(group) })
		err = errors.Join(err, removed)
	}()
	// The process's existing memory stays charged elsewhere: only new memory counts.
	for _, setting := range [][2]string{{"memory.limit_in_bytes", "1048576"}, {"cgroup.procs", strconv.Itoa(n.Pid())}} {
		if err := os.WriteFile(filepath.Join(group, setting[0]), []byte(setting[1]), 0o600); err != nil {
			return fmt.Errorf("limiting memory (%w): %w", err, ErrCannot)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := n.Wait(waiting); err != nil {
		// It survived with its existing memory, and leaves the group.
		back := os.WriteFile(filepath.Join(memoryGroups, "cgroup.procs"), []byte(strconv.Itoa(n.Pid())), 0o600)
		return errors.Join(back, ErrCannot)
	}
	return nil
}

// noDescriptors leaves the leader only two more file descriptors than it has. It accepts no
// connections then: a worker without a session can't open one, as if its link were cut.
func noDescriptors(ctx context.Context, w *World, hold time.Duration) error {
	n, err := w.Leader(ctx)
	if err != nil {
		return err
	}
	return fewDescriptors(ctx, w, n, hold)
}

func fewDescriptors(ctx context.Context, w *World, n *cluster.Coordinator, hold time.Duration) error {
	release, err := w.Take("descriptors", n.Name, WorkerLinks)
	if err != nil {
		return err
	}
	defer release()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.Pid()))
	if err != nil {
		return fmt.Errorf("counting descriptors: %w", ErrCannot)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return fmt.Errorf("reading limits: %w", ErrCannot)
	}
	few := unix.Rlimit{Cur: uint64(len(open)) + 2, Max: before.Max}
	if err := unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, &few, nil); err != nil {
		return fmt.Errorf("setting limits: %w", ErrCannot)
	}
	pauseOr(ctx, hold)
	if n.Running() {
		_ = unix.Prlimit(n.Pid(), unix.RLIMIT_NOFILE, &before, nil) // it may have exited
	}
	return Ensure(context.WithoutCancel(ctx), n.Process)
}
