package nemesis

import (
	"context"
	"errors"
	"time"
)

// A Fault is one kind of fault. Values are used by one goroutine at a time.
type Fault interface {
	// Kind is its number in the catalog: F1.
	Kind() string
	// Name describes it in one word: leader-sigkill.
	Name() string
	// Apply breaks something, waits for about hold or until ctx is done, repairs it,
	// and returns. It takes (World.Take) everything that it breaks or starts, or
	// returns ErrBusy without effect. An error other than ErrBusy and ErrCannot ends
	// the run: it means that the suite is broken. Several faults may be applied at
	// the same time, each with a World whose Random is its own.
	Apply(ctx context.Context, w *World, hold time.Duration) error
}

// ErrBusy is returned by a Fault if another fault has taken what it needs; it is
// drawn again later.
var ErrBusy = errors.New("taken by another fault")

// ErrCannot is returned by a Fault that did not take effect: the event that it waits
// for did not happen, or this machine doesn't support it. It is not counted.
var ErrCannot = errors.New("cannot be done now")

// fault is a Fault made from a function.
type fault struct {
	kind, name string
	apply      func(ctx context.Context, w *World, hold time.Duration) error
}

func (f fault) Kind() string { return f.kind }
func (f fault) Name() string { return f.name }

func (f fault) Apply(ctx context.Context, w *World, hold time.Duration) error {
	return f.apply(ctx, w, hold)
}

// All returns the faults of this package. A world without the means for some of them
// skips these.
func All() []Fault {
	var all []Fault
	for _, some := range [][]fault{processFaults(), moreProcessFaults(), workerFaults(), networkFaults(), clockFaults(), adminFaults(), diskFaults(), damageFaults(), memberFaults()} {
		for _, f := range some {
			all = append(all, f)
		}
	}
	return all
}
