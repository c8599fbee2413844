package nemesis

import (
	"context"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

func clockFaults() []fault {
	return []fault{
		{"F52", "clock-step", clocks(func(w *World) map[string]any {
			steps := []time.Duration{10 * time.Second, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour}
			step := steps[w.Random.IntN(len(steps))]
			if w.Random.IntN(2) == 0 {
				step = -step
			}
			return map[string]any{"offset_ms": step.Milliseconds()}
		}, 0)},
		{"F53", "clock-drift", clocks(func(w *World) map[string]any {
			return map[string]any{"rate_permille": 950 + 100*w.Random.IntN(2)}
		}, 0)},
		{"F54", "clock-frozen", clocks(func(*World) map[string]any { return map[string]any{"freeze": true} }, 0)},
		{"F55", "clock-strobe", clocks(func(w *World) map[string]any {
			return map[string]any{"offset_ms": w.Random.Int64N(20_000) - 10_000}
		}, 100*time.Millisecond)},
	}
}

// clocks sets the wall clock of the leader, or of one or all replicas, once or
// repeatedly, and then corrects it.
func clocks(setting func(*World) map[string]any, every time.Duration) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		release, err := w.Take("clock", Clocks)
		if err != nil {
			return err
		}
		defer release()
		who := w.Cluster.Coordinators()
		switch w.Random.IntN(3) {
		case 0:
			who = who[:1]
		case 1:
			leader, err := w.Leader(ctx)
			if err != nil {
				return err
			}
			who = []*cluster.Coordinator{leader}
		}
		set := func(s map[string]any) (some bool) {
			for _, n := range who {
				some = w.clock(ctx, n, s) == nil || some // a replica that is down has the correct time after its restart
			}
			return some
		}
		some := set(setting(w))
		switch {
		case !some: // they are down, or stopped
		case every == 0:
			pauseOr(ctx, hold)
		default:
			_ = repeat(ctx, max(hold, time.Second), every, func() error {
				set(setting(w))
				return nil
			}) // never fails
		}
		ctx = context.WithoutCancel(ctx)
		for _, n := range who {
			right := func(ctx context.Context) error { return w.clock(ctx, n, map[string]any{}) }
			if err := correct(ctx, n.Running, right); err != nil {
				w.Log("the clock of %s was not corrected: %v", n.Name, err)
			}
		}
		if !some {
			return ErrCannot
		}
		return nil
	}
}

const (
	// correctLimit bounds how long a process may be stopped before its clock is corrected: longer
	// than any fault stops one.
	correctLimit = 40 * time.Second
	// lateSetting is when a process that continues has set its clock as all calls wanted that have
	// timed out while it was stopped.
	lateSetting = time.Second
)

// correct makes the clock of a process right, also if the process is stopped: it then does what it
// was asked for when it continues, in any order. One that is down has the correct time after its
// restart.
func correct(ctx context.Context, running func() bool, right func(context.Context) error) error {
	for range 2 { // the second one comes after everything that was asked before the first
		err := cluster.Until(ctx, "the clock is corrected", correctLimit, func(ctx context.Context) error {
			if !running() {
				return nil
			}
			return right(ctx)
		})
		if err != nil {
			return err //nolint:wrapcheck // says what it waited for
		}
		pauseOr(ctx, lateSetting)
	}
	return nil
}
