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

// A Trouble is one kind of fault of disks as a whole, for a nemesis: it breaks
// something, holds, and heals.
type Trouble struct {
	Kind string // its place in the catalog: F38
	Name string // as one word: sync-hangs
	// All says that it harms all coordinators at once, otherwise one.
	All bool
	// Loses says that its victims lose what they had not synced: no other fault
	// may put stored data at risk meanwhile.
	Loses bool

	do func(ctx context.Context, b broken) error
}

// broken is what a trouble works on.
type broken struct {
	disks   Disks
	victims []*cluster.Coordinator
	hold    time.Duration
	random  *rand.Rand
}

// Troubles are all kinds.
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

// Apply breaks the disks of the victims, which the caller has for itself, holds
// for a time or until ctx is done, and heals. The victims then may have ended, or
// be about to: the caller starts who does not run.
func (t Trouble) Apply(ctx context.Context, disks Disks, victims []*cluster.Coordinator, hold time.Duration, random *rand.Rand) error {
	for _, n := range victims {
		if disks[n.Name] == nil {
			return fmt.Errorf("%s: %s has no disk that breaks", t.Name, n.Name)
		}
	}
	if err := t.do(ctx, broken{disks, victims, hold, random}); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// pause waits. An interruption is not an error.
func (b broken) pause(ctx context.Context) { _ = cluster.Pause(ctx, b.hold) }

// each does something with the disk of each victim, all of them at once.
func (b broken) each(do func(n *cluster.Coordinator, d *Disk) error) error {
	var together sync.WaitGroup
	errs := make([]error, len(b.victims))
	for i, n := range b.victims {
		together.Go(func() { errs[i] = do(n, b.disks[n.Name]) })
	}
	together.Wait()
	return errors.Join(errs...)
}

// ruled is a trouble that is one rule for as long as it holds.
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
		return err
	}
}

// full leaves no room at all, without a warning.
func full(ctx context.Context, b broken) error {
	err := b.each(func(_ *cluster.Coordinator, d *Disk) error { return d.Room(0, true) })
	b.pause(ctx)
	return errors.Join(err, b.each(func(_ *cluster.Coordinator, d *Disk) error { return d.Room(Plenty, false) }))
}

// powerCut cuts the power in the midst of syncs that take their time.
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
