package nemesis

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/faultfs/mount"
	"github.com/dtask/dtask/test/cluster"
)

func diskFaults() []fault {
	return []fault{
		{"F38", "sync-hangs", onDisk(func(w *World, d *faultfs.Disk) (*faultfs.Fault, error) {
			lengths := []time.Duration{time.Second, 5 * time.Second, 60 * time.Second}
			return d.HangOnce(mount.OpSync, faultfs.LogFiles, lengths[w.Random.IntN(len(lengths))])
		})},
		{"F39", "sync-fails", onDisk(func(_ *World, d *faultfs.Disk) (*faultfs.Fault, error) {
			return d.FailOnce(mount.OpSync, faultfs.LogFiles, syscall.EIO)
		})},
		{"F40", "write-fails", onDisk(func(_ *World, d *faultfs.Disk) (*faultfs.Fault, error) {
			return d.FailOnce(mount.OpWrite, faultfs.LogFiles, syscall.EIO)
		})},
		{"F41", "disk-full", onDisk(func(w *World, d *faultfs.Disk) (*faultfs.Fault, error) {
			return nil, d.SetFree(int64(w.Random.IntN(200_000)), w.Random.IntN(2) == 0)
		})},
		{"F42", "power-cut", powerCut(aReplica)},
		{"F43", "power-cut-of-all", powerCut(everybody)},
		{"F50", "read-only", onDisk(func(_ *World, d *faultfs.Disk) (*faultfs.Fault, error) { return d.ReadOnly() })},
		{"F51", "slow-disk", onDisk(func(_ *World, d *faultfs.Disk) (*faultfs.Fault, error) {
			return d.Slow(mount.OpSync, "", 50*time.Millisecond)
		})},
	}
}

// aReplica picks a replica, the leader as often as the others together.
func aReplica(ctx context.Context, w *World) ([]*cluster.Coordinator, error) {
	if w.Random.IntN(2) == 0 {
		return theLeader(ctx, w)
	}
	return aFollower(ctx, w)
}

// onDisk breaks the disk of one replica for a time. A replica that exits because of
// it is restarted afterwards. A rule that met no operation did not take effect.
func onDisk(harm func(*World, *faultfs.Disk) (*faultfs.Fault, error)) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		if w.Disks == nil {
			return fmt.Errorf("no fault disks: %w", ErrCannot)
		}
		some, release, err := w.takeProcesses(ctx, "disk", aReplica)
		if err != nil {
			return err
		}
		n := some[0]
		disk := w.Disks[n.Name]
		rule, err := harm(w, disk)
		if err == nil {
			pauseOr(ctx, hold)
		}
		err = errors.Join(err, disk.SetFree(faultfs.Plenty, false), disk.Heal())
		if err == nil && rule != nil {
			if err = rule.Missed(); errors.Is(err, faultfs.ErrMissed) {
				err = fmt.Errorf("%w: %w", err, ErrCannot)
			}
		}
		// An operation that just failed may still end the process.
		pauseOr(ctx, time.Second)
		if !n.Running() {
			w.ended(ctx, n.Process)
		}
		return errors.Join(err, w.revive(ctx, release, n))
	}
}

// powerCut cuts the power of several replicas at the same moment: unsynced data is
// lost, torn or kept.
func powerCut(who pick) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		if w.Disks == nil {
			return fmt.Errorf("no fault disks: %w", ErrCannot)
		}
		some, release, err := w.takeProcesses(ctx, "power cut", who)
		if err != nil {
			return err
		}
		off := make(chan error, len(some)) // each sends one
		for _, n := range some {
			go func() { off <- errors.Join(w.Disks[n.Name].PowerOff(), w.killNow(n)) }()
		}
		var errs []error
		for range some {
			errs = append(errs, <-off)
		}
		for _, n := range some {
			_, err := w.Disks[n.Name].PowerOn(w.Random.Uint64())
			errs = append(errs, err)
		}
		pauseOr(ctx, min(hold, downAtMost))
		return errors.Join(append(errs, w.revive(ctx, release, some...))...)
	}
}
