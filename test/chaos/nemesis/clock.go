package nemesis

import (
	"context"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

func clockFaults() []fault {
	return []fault{
		{"F52", "clock-step", clocks(func(w *World) map[string]any {
			steps := []time.Duration{10 * time.Second, time.Hour, 365 * 24 * time.Hour}
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
		if !set(setting(w)) {
			return ErrCannot
		}
		if every == 0 {
			pauseOr(ctx, hold)
		} else {
			_ = repeat(ctx, max(hold, time.Second), every, func() error {
				set(setting(w))
				return nil
			}) // never fails
		}
		ctx = context.WithoutCancel(ctx)
		for _, n := range who {
			right := func(ctx context.Context) error { return w.clock(ctx, n, map[string]any{}) }
			if err := cluster.Until(ctx, "the clock of "+n.Name+" is corrected", 5*time.Second, right); err != nil {
				w.Log("the clock of %s was not corrected: it is down and has the correct time after its restart (%v)", n.Name, err)
			}
		}
		return nil
	}
}
