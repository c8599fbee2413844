package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// downAtMost is the longest time that a majority is kept down: beyond it a run learns
// nothing new, and traffic has a minimum.
const downAtMost = 4 * time.Second

func processFaults() []fault {
	return []fault{
		{"F1", "leader-sigkill", killed(1, theLeader)},
		{"F1", "leaders-back-to-back", backToBack},
		{"F2", "follower-sigkill", killed(1, aFollower)},
		{"F3", "followers-sigkill", killed(2, allFollowers)},
		{"F4", "all-sigkill", killed(3, everybody)},
		{"F5", "kill-during-start", killDuringStart},
		{"F6", "kill-in-snapshot", killInSnapshot},
		{"F7", "kill-in-install", killInInstall},
		{"F8", "leader-sigterm", terminateLeader},
		{"F9", "leader-sigstop", stopped(theLeader, 30*time.Second)},
		{"F10", "follower-sigstop", stopped(aFollower, 30*time.Second)},
		{"F11", "all-sigstop", stopped(everybody, downAtMost)},
	}
}

// A pick chooses the coordinators to harm.
type pick func(ctx context.Context, w *World) ([]*cluster.Coordinator, error)

func theLeader(ctx context.Context, w *World) ([]*cluster.Coordinator, error) {
	n, err := w.Leader(ctx)
	return []*cluster.Coordinator{n}, err
}

func aFollower(ctx context.Context, w *World) ([]*cluster.Coordinator, error) {
	all, err := w.Followers(ctx)
	if err != nil {
		return nil, err
	}
	return all[:1], nil
}

func allFollowers(ctx context.Context, w *World) ([]*cluster.Coordinator, error) {
	return w.Followers(ctx)
}

func everybody(_ context.Context, w *World) ([]*cluster.Coordinator, error) {
	return w.Cluster.Coordinators(), nil
}

// takeProcesses takes the chosen coordinators.
func (w *World) takeProcesses(ctx context.Context, fault string, who pick) ([]*cluster.Coordinator, func(), error) {
	some, err := who(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	release, err := w.Take(fault, replicas(some...)...)
	return some, release, err
}

// killed kills some coordinators and restarts them.
func killed(many int, who pick) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		some, release, err := w.takeProcesses(ctx, "SIGKILL", who)
		if err != nil {
			return err
		}
		for _, n := range some {
			if err := w.Kill(ctx, n); err != nil {
				release()
				return err
			}
		}
		if many > 1 {
			hold = min(hold, downAtMost)
		}
		pauseOr(ctx, hold)
		return w.revive(ctx, release, some...)
	}
}

// revive restarts coordinators and releases them. It does so also when ctx is done,
// because nothing else would.
func (w *World) revive(ctx context.Context, release func(), some ...*cluster.Coordinator) error {
	defer release()
	var errs []error
	for _, n := range some {
		errs = append(errs, Ensure(context.WithoutCancel(ctx), n.Process))
	}
	return errors.Join(errs...)
}

// killDuringStart kills a replica, and repeatedly while it starts.
func killDuringStart(ctx context.Context, w *World, _ time.Duration) error {
	some, release, err := w.takeProcesses(ctx, "kill during start", aFollower)
	if err != nil {
		return err
	}
	n := some[0]
	for range 2 + w.Random.IntN(3) {
		if err = w.Kill(ctx, n); err != nil {
			break
		}
		if err = Ensure(ctx, n.Process); err != nil {
			break
		}
		pauseOr(ctx, time.Duration(w.Random.IntN(250))*time.Millisecond)
	}
	if err == nil {
		err = w.Kill(ctx, n)
	}
	return errors.Join(err, w.revive(ctx, release, n))
}

// snapshotWait is how long a fault waits until a snapshot is being written.
const snapshotWait = 15 * time.Second

// awaitTmp returns when an unfinished snapshot is in a replica's directory.
func awaitTmp(ctx context.Context, n *cluster.Coordinator, limit time.Duration) error {
	pattern := filepath.Join(n.DataDir, "snapshots", "*.tmp")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // a valid pattern
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for snapshot: %w", ErrCannot)
		}
	}
	return fmt.Errorf("no snapshot within %s: %w", limit, ErrCannot)
}

// killInSnapshot kills a replica while it writes a snapshot.
func killInSnapshot(ctx context.Context, w *World, _ time.Duration) error {
	all := w.Cluster.Coordinators()
	n := all[w.Random.IntN(len(all))]
	release, err := w.Take("kill in snapshot", n.Name)
	if err != nil {
		return err
	}
	return errors.Join(w.killAmid(ctx, n), w.revive(ctx, release, n))
}

// killAmid requests snapshots of a replica repeatedly, and kills it while one is
// being written.
func (w *World) killAmid(ctx context.Context, n *cluster.Coordinator) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = w.snapshot(ctx, n) // it is killed meanwhile
			pauseOr(ctx, 20*time.Millisecond)
		}
	}()
	err := awaitTmp(ctx, n, snapshotWait)
	if err == nil {
		err = w.killNow(n)
	}
	cancel()
	<-done
	return err
}

// Trailing is how many entries must stay behind a snapshot, by
// faults.TrailingLogsVariable, for faults to make replicas need one.
const Trailing = 128

// leaveBehind keeps a follower down until the leader has compacted the entries that
// it lacks, so that it needs a snapshot when it restarts.
func (w *World) leaveBehind(ctx context.Context, n *cluster.Coordinator) error {
	leader, err := w.Leader(ctx)
	if err != nil {
		return err
	}
	last := w.applied(ctx, n)
	if err := w.Kill(ctx, n); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	const limit = 25 * time.Second
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		_ = w.snapshot(ctx, leader) // the loop checks the result
		if newestSnapshot(leader) > last+Trailing {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ErrCannot
		}
	}
	return fmt.Errorf("the leader still has the entries that %s lacks: %w", n.Name, ErrCannot)
}

// applied returns the last index that a replica is known to have applied.
func (w *World) applied(ctx context.Context, n *cluster.Coordinator) uint64 {
	s, err := w.status.ClusterStatus(ctx)
	if err != nil {
		return 0
	}
	most := uint64(0)
	for _, m := range s.GetMembers() {
		if n.Is(m.GetId()) && m.GetApplied() > 0 {
			return m.GetApplied()
		}
		most = max(most, m.GetApplied())
	}
	return most
}

// newestSnapshot returns the index of a replica's newest finished snapshot, from the
// directory's name: term-index-time.
func newestSnapshot(n *cluster.Coordinator) uint64 {
	found, err := os.ReadDir(filepath.Join(n.DataDir, "snapshots"))
	if err != nil {
		return 0
	}
	newest := uint64(0)
	for _, e := range found {
		parts := strings.Split(e.Name(), "-")
		if len(parts) != 3 || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		if index, err := strconv.ParseUint(parts[1], 10, 64); err == nil {
			newest = max(newest, index)
		}
	}
	return newest
}

// killInInstall kills a replica while it receives the leader's snapshot.
func killInInstall(ctx context.Context, w *World, _ time.Duration) error {
	some, release, err := w.takeProcesses(ctx, "kill in install", aFollower)
	if err != nil {
		return err
	}
	n := some[0]
	if err = w.leaveBehind(ctx, n); err == nil {
		if err = Ensure(ctx, n.Process); err == nil {
			if err = awaitTmp(ctx, n, 5*time.Second); err == nil {
				err = w.killNow(n)
			}
		}
	}
	return errors.Join(err, w.revive(ctx, release, n))
}

// terminateLeader sends SIGTERM to the leader, which transfers leadership.
func terminateLeader(ctx context.Context, w *World, hold time.Duration) error {
	some, release, err := w.takeProcesses(ctx, "SIGTERM", theLeader)
	if err != nil {
		return err
	}
	n := some[0]
	if err := n.Terminate(); err != nil {
		release()
		return fmt.Errorf("the leader has exited: %w", ErrCannot)
	}
	waiting, cancel := context.WithTimeout(ctx, termLimit)
	defer cancel()
	if _, err := n.Wait(waiting); err != nil {
		w.Log("%s did not exit within %s of SIGTERM", n.Name, termLimit)
		if err := w.Kill(ctx, n); err != nil {
			release()
			return err
		}
	}
	pauseOr(ctx, hold)
	return w.revive(ctx, release, n)
}

// termLimit is how long a process may take to exit after SIGTERM.
const termLimit = 40 * time.Second

// stopped stops some processes for a limited time, and resumes them.
func stopped(who pick, most time.Duration) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		some, release, err := w.takeProcesses(ctx, "SIGSTOP", who)
		if err != nil {
			return err
		}
		paused := 0
		for _, n := range some {
			if n.Pause() == nil { // the nurse restarts one that has exited
				paused++
			}
		}
		if paused == 0 {
			release()
			return fmt.Errorf("no process to stop is running: %w", ErrCannot)
		}
		// Occasionally for much longer than any timeout.
		if w.Random.IntN(8) == 0 {
			hold = 30 * time.Second
		}
		pauseOr(ctx, min(hold, most))
		for _, n := range some {
			_ = n.Resume()
		}
		release()
		return nil
	}
}

func moreProcessFaults() []fault {
	return []fault{
		{"F14", "client-sigkill", killClient},
		{"F15", "leader-and-worker-sigkill", killPair},
		{"F16", "cpu-starved", starve},
		{"F17", "memory-limit", oom},
		{"F18", "no-descriptors", noDescriptors},
		{"F19", "command-sigkill", killCommand},
	}
}

func killClient(ctx context.Context, w *World, _ time.Duration) error {
	if w.KillClient == nil {
		return ErrCannot
	}
	for range 3 {
		if err := w.KillClient(ctx, time.Duration(w.Random.IntN(60))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func killPair(ctx context.Context, w *World, hold time.Duration) error {
	leader, err := w.Leader(ctx)
	if err != nil {
		return err
	}
	k := w.Worker()
	release, err := w.Take("SIGKILL of two", leader.Name, k.Name)
	if err != nil {
		return err
	}
	both := make(chan error, 1) // one sends
	go func() { both <- w.KillWorker(k) }()
	err = errors.Join(w.Kill(ctx, leader), <-both)
	pauseOr(ctx, hold)
	return errors.Join(err, Ensure(context.WithoutCancel(ctx), k.Process), w.revive(ctx, release, leader))
}

// starve keeps all cores busy with twice as many processes.
func starve(ctx context.Context, w *World, hold time.Duration) error {
	release, err := w.Take("starvation", CPU)
	if err != nil {
		return err
	}
	defer release()
	stop, err := Spin(ctx, w.Cluster.Dir, 2*runtime.NumCPU())
	if err != nil {
		return err
	}
	pauseOr(ctx, hold)
	return stop()
}

// Spin starts processes that busy-loop; stop ends them.
func Spin(ctx context.Context, dir string, many int) (stop func() error, err error) {
	var spinners []*cluster.Process
	stop = func() error {
		var errs []error
		for _, p := range spinners {
			errs = append(errs, p.Kill())
		}
		return errors.Join(errs...)
	}
	for i := range many {
		p := cluster.NewProcess(fmt.Sprintf("spin%d", i), dir, "/bin/sh", []string{"-c", "while :; do :; done"}, nil)
		if err := p.Start(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("starting a spinner: %w", err), stop())
		}
		spinners = append(spinners, p)
	}
	return stop, nil
}
