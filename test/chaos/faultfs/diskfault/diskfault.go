// Package diskfault makes the troubles of disks (package faultfs) available as
// faults of a nemesis (package nemesis).
package diskfault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster"
)

// downAtMost bounds the time during which all disks are broken at once: a longer
// time proves nothing more.
const downAtMost = 4 * time.Second

// Faults returns all troubles, for a cluster whose coordinators are on these disks.
func Faults(disks faultfs.Disks) []nemesis.Fault {
	var all []nemesis.Fault
	for _, t := range faultfs.Troubles() {
		all = append(all, fault{t, disks})
	}
	return all
}

type fault struct {
	trouble faultfs.Trouble
	disks   faultfs.Disks
}

// Kind implements nemesis.Fault.
func (f fault) Kind() string { return f.trouble.Kind }

// Name implements nemesis.Fault.
func (f fault) Name() string { return f.trouble.Name }

// Apply implements nemesis.Fault. Victims are reserved until they have caught up.
func (f fault) Apply(ctx context.Context, w *nemesis.World, hold time.Duration) error {
	victims, err := f.victims(ctx, w)
	if err != nil {
		return err
	}
	var things []string
	for _, n := range victims {
		things = append(things, n.Name)
	}
	if f.trouble.Loses {
		things = append(things, nemesis.Data)
	}
	release, err := w.Take(f.Name(), things...)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	defer release()
	if f.trouble.All {
		hold = min(hold, downAtMost)
	}
	err = f.trouble.Apply(ctx, f.disks, victims, hold, w.Random)
	if errors.Is(err, faultfs.ErrMissed) {
		err = fmt.Errorf("%w: %w", err, nemesis.ErrCannot)
	}
	return errors.Join(err, back(ctx, w, victims))
}

// victims returns the leader or a follower, or all replicas.
func (f fault) victims(ctx context.Context, w *nemesis.World) ([]*cluster.Coordinator, error) {
	if f.trouble.All {
		return w.Cluster.Coordinators(), nil
	}
	if w.Random.IntN(2) == 0 {
		leader, err := w.Leader(ctx)
		return []*cluster.Coordinator{leader}, err
	}
	others, err := w.Followers(ctx)
	if err != nil {
		return nil, err
	}
	return others[:1], nil
}

// backLimit bounds the time until a replica has caught up. It is not a failure if it
// takes longer, because other faults may delay it.
const backLimit = 15 * time.Second

// back restarts coordinators that do not run or are about to exit, also when ctx is
// done: nothing else would.
func back(ctx context.Context, w *nemesis.World, victims []*cluster.Coordinator) error {
	ctx = context.WithoutCancel(ctx)
	err := cluster.Until(ctx, "the victims are back", backLimit, func(ctx context.Context) error {
		if err := ensure(ctx, victims); err != nil {
			return err
		}
		var errs []error
		for _, n := range victims {
			errs = append(errs, n.Get(ctx, "/readyz"))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		w.Log("after a disk fault: %v", err)
	}
	return ensure(ctx, victims)
}

func ensure(ctx context.Context, victims []*cluster.Coordinator) error {
	var errs []error
	for _, n := range victims {
		errs = append(errs, nemesis.Ensure(context.WithoutCancel(ctx), n.Process))
	}
	return errors.Join(errs...)
}
