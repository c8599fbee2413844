package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
)

// damageFaults are faults after which the stored data of a replica must not be
// used anymore. The replica comes back with the data of the others, under another server
// ID.
func damageFaults() []fault {
	return []fault{
		{"F44", "torn-page", damaged(tearPage)},
		{"F45", "bit-flip-in-log", damaged(flipInLog)},
		{"F46", "bit-flip-in-snapshot", damaged(flipInSnapshot)},
		{"F47", "truncated-log", damaged(truncateLog)},
		{"F48", "directory-deleted-under-it", deletedUnder},
		{"F49", "old-copy-of-a-disk", rolledBack},
		{"F59", "all-replaced", replaceAll},
		{"F60", "wiped", wiped},
	}
}

const (
	// backLimit is how long a replica without data may take until it votes and has
	// caught up, or has its history. It is a guard: other faults may delay it for as
	// long as they hold.
	backLimit = 10 * time.Minute
	// rootPages is the offset of the first data page of a store, after its two root
	// pages.
	rootPages = 8192
)

// damaged corrupts stored data of a replica while it is down. Whether or not the
// damage is detected, none of it remains at the end: one replica at a time may be
// damaged.
func damaged(harm func(w *World, d *faultfs.Disk, n *cluster.Coordinator) error) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		return w.atRisk(ctx, "damage", func(d *faultfs.Disk, n *cluster.Coordinator) error {
			if err := w.Kill(ctx, n); err != nil {
				return err
			}
			if err := harm(w, d, n); err != nil {
				return errors.Join(err, Ensure(context.WithoutCancel(ctx), n.Process))
			}
			pauseOr(ctx, min(hold, downAtMost))
			if err := w.comeBack(ctx, n); err != nil {
				return err
			}
			aside, err := w.removeQuarantined(n)
			if err != nil || aside > 0 {
				return err
			}
			w.Log("%s restarted on the damaged data; wiping it", n.Name) // the damage was in unused space
			return w.wipe(ctx, n, 0)
		})
	}
}

// atRisk takes a replica, and the right to put its stored data at risk.
func (w *World) atRisk(ctx context.Context, fault string, do func(d *faultfs.Disk, n *cluster.Coordinator) error) error {
	return w.risked(ctx, fault, func() error {
		some, release, err := w.takeProcesses(ctx, fault, aReplica)
		if err != nil {
			return err
		}
		defer release()
		return do(w.Disks[some[0].Name], some[0])
	})
}

// risked runs f on a replica while no other replica's data is at risk.
func (w *World) risked(ctx context.Context, fault string, do func() error) error {
	if w.Disks == nil {
		return fmt.Errorf("no fault disks: %w", ErrCannot)
	}
	data, err := w.Take(fault, Data, Members)
	if err != nil {
		return err
	}
	defer data()
	if err := w.allKnowAll(ctx); err != nil {
		return err
	}
	return do()
}

// allKnowAll returns when every replica has its history, and has applied everything
// committed by now. A replica that lags may not know all voters, and refuses its vote
// to one that it doesn't know: if another replica then loses its data, no leader can
// be elected (docs/guarantees.md).
func (w *World) allKnowAll(ctx context.Context) error {
	const limit = 5 * time.Second
	all, committed := len(w.Cluster.Coordinators()), uint64(0)
	err := cluster.Until(ctx, "all replicas know everything committed", limit, func(ctx context.Context) error {
		s, err := w.status.ClusterStatus(ctx)
		if err != nil {
			return fmt.Errorf("listing replicas: %w", err)
		}
		if committed == 0 {
			for _, m := range s.GetMembers() {
				committed = max(committed, m.GetApplied())
			}
		}
		know := 0
		for _, m := range s.GetMembers() {
			if m.GetVoter() && m.GetState() != "unreachable" && m.GetApplied() >= committed {
				know++
			}
		}
		if s.GetLeader() == "" || know < all || know != len(s.GetMembers()) {
			return fmt.Errorf("leader %q, members %v", s.GetLeader(), s.GetMembers())
		}
		for _, n := range w.Cluster.Coordinators() {
			if err := whole(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrCannot)
	}
	return nil
}

func tearPage(w *World, d *faultfs.Disk, n *cluster.Coordinator) error {
	return d.TearLog(n.DataDir, w.Random) //nolint:wrapcheck // the error is complete
}

// logFile returns the file to which the log of a replica is appended, and its path on
// the disk.
func logFile(d *faultfs.Disk, n *cluster.Coordinator) (path, onDisk string, err error) {
	if path, err = faultfs.LogFile(n.DataDir); err != nil {
		return "", "", err //nolint:wrapcheck // the error is complete
	}
	onDisk, err = filepath.Rel(d.Dir, path)
	return path, onDisk, err
}

// flipInLog flips several bits of the store: most pages are free, so a single bit
// would usually be in unused space.
func flipInLog(w *World, d *faultfs.Disk, n *cluster.Coordinator) error {
	path, onDisk, err := logFile(d, n)
	for range 1 + w.Random.IntN(16) {
		var bit int64
		if err == nil {
			bit, err = faultfs.UsedBit(path, w.Random)
		}
		if err == nil {
			_, err = d.Flip(onDisk, bit, 0)
		}
	}
	return err //nolint:wrapcheck // the error is complete
}

func flipInSnapshot(w *World, d *faultfs.Disk, n *cluster.Coordinator) error {
	files := snapshotFiles(n.DataDir)
	if len(files) == 0 {
		return fmt.Errorf("%s has no finished snapshot: %w", n.Name, ErrCannot)
	}
	path, err := filepath.Rel(d.Dir, files[w.Random.IntN(len(files))])
	if err == nil {
		_, err = d.Flip(path, -1, w.Random.Uint64())
	}
	return err //nolint:wrapcheck // the error is complete
}

// snapshotFiles returns the files of a replica's finished snapshots that have content:
// a kill can leave an unfinished one whose files are empty.
func snapshotFiles(dataDir string) []string {
	files, _ := filepath.Glob(filepath.Join(dataDir, "snapshots", "*", "*")) // a valid pattern
	return slices.DeleteFunc(files, func(path string) bool {
		about, err := os.Stat(path)
		return err != nil || about.Size() == 0 || strings.HasSuffix(filepath.Dir(path), ".tmp")
	})
}

func truncateLog(w *World, d *faultfs.Disk, n *cluster.Coordinator) error {
	path, _, err := logFile(d, n)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("truncating store: %w", err)
	}
	about, err := file.Stat()
	if err == nil && about.Size() > rootPages {
		err = file.Truncate(rootPages + w.Random.Int64N(about.Size()-rootPages))
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// deletedUnder deletes the directory of a running replica, which is killed a little
// later and finds nothing.
func deletedUnder(ctx context.Context, w *World, hold time.Duration) error {
	return w.atRisk(ctx, "directory deleted", func(_ *faultfs.Disk, n *cluster.Coordinator) error {
		// The replica's operations in its directory may fail, and so may the removal.
		err := cluster.Until(context.WithoutCancel(ctx), "the directory is deleted", time.Minute, func(context.Context) error { return os.RemoveAll(n.DataDir) })
		if err != nil {
			return fmt.Errorf("deleting directory: %w", err)
		}
		pauseOr(ctx, min(hold, downAtMost))
		return w.wipe(ctx, n, 0)
	})
}

// wiped deletes the directory of a replica that is down.
func wiped(ctx context.Context, w *World, hold time.Duration) error {
	return w.atRisk(ctx, "wipe", func(_ *faultfs.Disk, n *cluster.Coordinator) error {
		return w.wipe(ctx, n, min(hold, downAtMost))
	})
}

// replaceAll deletes the directories of all replicas one after another, each when the
// previous replica has caught up.
func replaceAll(ctx context.Context, w *World, _ time.Duration) error {
	if w.Disks == nil {
		return fmt.Errorf("no fault disks: %w", ErrCannot)
	}
	all := w.Cluster.Coordinators()
	release, err := w.Take("replacement of all", append(replicas(all...), Data, Members)...)
	if err != nil {
		return err
	}
	defer release()
	if err := w.allKnowAll(ctx); err != nil {
		return err
	}
	for done, i := range w.Random.Perm(len(all)) {
		if done > 0 {
			if err := w.allKnowAll(context.WithoutCancel(ctx)); err != nil {
				return err // ErrCannot: not all were replaced
			}
		}
		if err := w.wipe(ctx, all[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// wipe deletes the directory of a replica, which the caller has taken with Data, and
// returns when it has come back.
func (w *World) wipe(ctx context.Context, n *cluster.Coordinator, down time.Duration) error {
	if err := w.Kill(ctx, n); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(n.DataDir), syncDirectory(filepath.Dir(n.DataDir))); err != nil {
		return fmt.Errorf("wiping %s: %w", n.Name, err)
	}
	pauseOr(ctx, down)
	if err := w.comeBack(ctx, n); err != nil {
		return err
	}
	_, err := w.removeQuarantined(n)
	return err
}

// syncDirectory makes changes to a directory durable: losing them is the power cut's
// fault.
func syncDirectory(dir string) error {
	f, err := os.Open(dir) //nolint:gosec // a directory of the suite
	if err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// comeBack starts a replica, repeatedly if it exits, until it votes and has caught
// up, also when ctx is done: its lost data is at risk until then.
func (w *World) comeBack(ctx context.Context, n *cluster.Coordinator) error {
	started := false
	err := cluster.Until(context.WithoutCancel(ctx), n.Name+" votes and has caught up", backLimit, func(ctx context.Context) error {
		if !n.Running() {
			if started {
				w.ended(ctx, n.Process)
			}
			started = true
			if err := Ensure(context.WithoutCancel(ctx), n.Process); err != nil {
				return err
			}
		}
		s, err := w.status.ClusterStatus(ctx)
		if err != nil {
			return fmt.Errorf("finding %s: %w", n.Name, err)
		}
		for _, m := range s.GetMembers() {
			const near = 64 // entries; under load a replica always lags
			if n.Is(m.GetId()) && m.GetVoter() && m.GetState() != "unreachable" && m.GetLag() <= near {
				return n.Get(ctx, "/readyz") //nolint:wrapcheck // the error is complete
			}
		}
		return fmt.Errorf("leader %q, members %v", s.GetLeader(), s.GetMembers())
	})
	if err != nil {
		return fmt.Errorf("rejoin after lost data: %w", err)
	}
	return nil // its history is fetched later; until then allKnowAll protects the others
}

// AwaitWhole returns nil when every replica has its whole history. It is called when
// everything is healed.
func (w *World) AwaitWhole(ctx context.Context) error {
	for _, n := range w.Cluster.Coordinators() {
		err := cluster.Until(ctx, "the history of "+n.Name+" is complete", backLimit, func(ctx context.Context) error { return whole(ctx, n) })
		if err != nil {
			return fmt.Errorf("incomplete replica: %w", err)
		}
	}
	return nil
}

// whole returns nil when a replica is ready and has the history of the jobs that have
// left the state. Each replica stores it separately, and fetches what it lacks from
// another one.
func whole(ctx context.Context, n *cluster.Coordinator) error {
	if err := n.Get(ctx, "/readyz"); err != nil {
		return err //nolint:wrapcheck // the error is complete
	}
	figures, err := n.Metrics(ctx)
	if err == nil && figures["dtask_history_incomplete"] != 0 {
		err = fmt.Errorf("history of %s is incomplete", n.Name)
	}
	return err //nolint:wrapcheck // the error is complete
}

// removeQuarantined removes the quarantined directories of a replica and returns
// their number.
func (w *World) removeQuarantined(n *cluster.Coordinator) (int, error) {
	aside, err := filepath.Glob(n.DataDir + ".damaged-*")
	for _, dir := range aside {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return 0, fmt.Errorf("removing quarantined directories: %w", err)
	}
	return len(aside), nil
}

// rolledBack restores an old copy of a replica's disk after the replica has
// acknowledged newer entries. The copy must be detected.
//
// The other running replicas detect it, if they can be reached: a replica that led at
// the time of the acknowledgment remembers it until its process ends. So no other
// fault affects a replica, a link between them, or their processors meanwhile: a starved
// one may end by itself.
func rolledBack(ctx context.Context, w *World, _ time.Duration) error {
	all := w.Cluster.Coordinators()
	others, err := w.Take("old copy", append(replicas(all...), PeerLinks, CPU)...)
	if err != nil {
		return err
	}
	defer others()
	return w.risked(ctx, "old copy", func() error {
		n := all[w.Random.IntN(len(all))]
		d := w.Disks[n.Name]
		if err := w.Kill(ctx, n); err != nil {
			return err
		}
		old := w.applied(ctx, n)
		if err := errors.Join(d.Save("old"), Ensure(context.WithoutCancel(ctx), n.Process)); err != nil {
			return fmt.Errorf("copying disk: %w", err)
		}
		if old == 0 {
			return fmt.Errorf("the acknowledged index of %s is unknown: %w", n.Name, ErrCannot)
		}
		if err := goesOn(ctx, n, old); err != nil {
			return err
		}
		if err := w.Kill(ctx, n); err != nil {
			return err
		}
		if err := d.Load("old"); err != nil {
			return fmt.Errorf("restoring a copy: %w", err)
		}
		if err := w.comeBack(ctx, n); err != nil {
			return err
		}
		aside, err := w.removeQuarantined(n)
		if err == nil && aside == 0 {
			err = fmt.Errorf("%s serves from an old copy of its disk, which ends at entry %d", n.Name, old)
		}
		return err
	})
}

// goesOn returns when a replica itself reports that it has acknowledged many entries
// more than before. The others' reports don't count: they are ahead of a replica
// that doesn't run.
func goesOn(ctx context.Context, n *cluster.Coordinator, before uint64) error {
	const (
		many  = 100
		limit = 10 * time.Second
	)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && ctx.Err() == nil; {
		figures, err := n.Metrics(ctx)
		if err == nil && figures["dtask_raft_leading"] == 0 && figures["dtask_raft_applied_index"] > float64(before+many) {
			return nil
		}
		pauseOr(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("%s has acknowledged no new entries: %w", n.Name, ErrCannot)
}
