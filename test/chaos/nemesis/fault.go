package nemesis

import (
	"context"
	"errors"
	"time"
)

// A Fault is one kind of trouble. Values are used by one goroutine at a time.
type Fault interface {
	// Kind is its place in the catalog: F1.
	Kind() string
	// Name says what it does, as one word: leader-sigkill.
	Name() string
	// Apply breaks something, waits for about hold or until ctx is done, puts it
	// right, and returns. It takes (World.Take) all that it breaks or starts, or
	// returns ErrBusy without effect. An error other than ErrBusy and ErrCannot
	// ends the run: it means that the suite is broken. Several faults may be
	// applied at the same time, each with a World whose Random is its own.
	Apply(ctx context.Context, w *World, hold time.Duration) error
}

// ErrBusy is returned by a Fault when what it needs is taken by another one; it
// is drawn again later.
var ErrBusy = errors.New("taken by another fault")

// ErrCannot is returned by a Fault that did not come to pass: what it waits for
// did not happen, or this machine cannot do it. It is not counted.
var ErrCannot = errors.New("cannot be done now")

// fault is a Fault made of a function.
type fault struct {
	kind, name string
	apply      func(ctx context.Context, w *World, hold time.Duration) error
}

func (f fault) Kind() string { return f.kind }
func (f fault) Name() string { return f.name }

func (f fault) Apply(ctx context.Context, w *World, hold time.Duration) error {
	return f.apply(ctx, w, hold)
}

// All are the faults of this package. Those that a world has no means for cannot
// be done there.
func All() []Fault {
	var all []Fault
	for _, some := range [][]fault{processFaults(), moreProcessFaults(), workerFaults(), networkFaults(), clockFaults(), adminFaults(), diskFaults(), damageFaults(), memberFaults()} {
		for _, f := range some {
			all = append(all, f)
		}
	}
	return all
}
