package faultfs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs/mount"
	"github.com/dtask/dtask/test/cluster"
)

// ErrMissed is returned by a Trouble that affected no operation. It doesn't count as a
// fault.
var ErrMissed = errors.New("no operation was affected")

// A Trouble is a fault of whole disks, for a nemesis: it breaks the disks, holds,
// and heals them.
type Trouble struct {
	Kind string // in the catalog: F38
	Name string // one word: sync-hangs
	// All is set if it harms all coordinators at once; otherwise it harms one.
	All bool
	// Loses is set if its victims lose unsynced data: no other fault may endanger
	// stored data at the same time.
	Loses bool

	do func(ctx context.Context, b broken) error
}

// broken has the victims of a trouble, and how long it holds.
type broken struct {
	disks   Disks
	victims []*cluster.Coordinator
	hold    time.Duration
	random  *rand.Rand
}

// Troubles returns all of them.
func Troubles() []Trouble {
	return []Trouble{
		{Kind: "F38", Name: "sync-hangs", do: ruled(Rule{Ops: []mount.Op{Sync}, Name: LogFiles, Hang: true})},
		{Kind: "F38", Name: "sync-hiccup", do: ruled(Rule{Ops: []mount.Op{Sync}, Name: LogFiles, Delay: time.Second, Times: 1})},
		{Kind: "F39", Name: "sync-fails-once", do: ruled(Rule{Ops: []mount.Op{Sync}, Name: LogFiles, Errno: syscall.EIO, Times: 1})},
		{Kind: "F40", Name: "write-fails-once", do: ruled(Rule{Ops: []mount.Op{Write}, Name: LogFiles, Errno: syscall.EIO, Times: 1})},
		{Kind: "F41", Name: "disk-full", do: full},
		{Kind: "F41", Name: "all-disks-full", All: true, do: full},
		{Kind: "F42", Name: "power-cut", Loses: true, do: powerCut},
		{Kind: "F43", Name: "power-cut-of-all", All: true, Loses: true, do: powerCut},
		{Kind: "F50", Name: "read-only", do: ruled(Rule{Errno: syscall.EROFS})},
		{Kind: "F51", Name: "slow-disks", All: true, do: ruled(Rule{Ops: []mount.Op{Sync}, Name: LogFiles, Delay: 50 * time.Millisecond})},
	}
}

// Apply breaks the disks of the victims, which the caller has reserved, holds for a
// time or until ctx is done, and heals them. Victims may have exited then or be
// about to: the caller restarts those that do not run.
func (t Trouble) Apply(ctx context.Context, disks Disks, victims []*cluster.Coordinator, hold time.Duration, random *rand.Rand) error {
	for _, n := range victims {
		if disks[n.Name] == nil {
			return fmt.Errorf("%s: %s has no fault disk", t.Name, n.Name)
		}
	}
	if err := t.do(ctx, broken{disks, victims, hold, random}); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// pause waits. An interruption is not an error.
func (b broken) pause(ctx context.Context) { _ = cluster.Pause(ctx, b.hold) }

// each calls a function for the disks of all victims concurrently.
func (b broken) each(do func(n *cluster.Coordinator, d *Disk) error) error {
	var together sync.WaitGroup
	errs := make([]error, len(b.victims))
	for i, n := range b.victims {
		together.Go(func() { errs[i] = do(n, b.disks[n.Name]) })
	}
	together.Wait()
	return errors.Join(errs...)
}

// ruled returns a trouble that is one rule.
func ruled(r Rule) func(context.Context, broken) error {
	return func(ctx context.Context, b broken) error {
		var mu sync.Mutex // guards faults
		var faults []*Fault
		err := b.each(func(_ *cluster.Coordinator, d *Disk) error {
			f, err := d.Add(r)
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, f)
			return err
		})
		b.pause(ctx)
		for _, f := range faults {
			err = errors.Join(err, f.Lift())
		}
		if err != nil {
			return err
		}
		return missed(faults...)
	}
}

// missed returns ErrMissed if none of these faults has affected an operation.
func missed(faults ...*Fault) error {
	for _, f := range faults {
		if now, err := f.Now(); err != nil || now.Fired > 0 {
			return err
		}
	}
	return ErrMissed
}

// Missed returns ErrMissed if the fault has affected no operation, also after it was
// lifted.
func (f *Fault) Missed() error { return missed(f) }

// full leaves no free space, without a warning.
func full(ctx context.Context, b broken) error {
	err := b.each(func(_ *cluster.Coordinator, d *Disk) error { return d.SetFree(0, true) })
	b.pause(ctx)
	return errors.Join(err, b.each(func(_ *cluster.Coordinator, d *Disk) error { return d.SetFree(Plenty, false) }))
}

// powerCut cuts the power during slow syncs.
func powerCut(ctx context.Context, b broken) error {
	slow := time.Duration(5+b.random.IntN(30)) * time.Millisecond
	err := b.each(func(_ *cluster.Coordinator, d *Disk) error {
		_, err := d.Slow(Sync, "", slow)
		return err
	})
	_ = cluster.Pause(ctx, 2*slow+time.Duration(b.random.IntN(200))*time.Millisecond)
	err = errors.Join(err, b.each(func(n *cluster.Coordinator, d *Disk) error { return errors.Join(d.PowerOff(), n.Kill()) }))
	b.pause(ctx)
	seed := b.random.Uint64()
	return errors.Join(err, b.each(func(_ *cluster.Coordinator, d *Disk) error {
		_, err := d.PowerOn(seed)
		return err
	}))
}
