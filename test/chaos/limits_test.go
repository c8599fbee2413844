package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster"
)

const (
	// minHandovers is how often limits must go from one task to another in a run.
	minHandovers = 10_000
	// firstKills is how many leaders are killed first, while no worker was lost for some time:
	// each next leader knows at once what runs, and must count it.
	firstKills = 4
	// joined is how long a worker is new: a leader that is elected meanwhile waits for a lease,
	// because it does not know what an earlier process of the worker runs.
	joined = 65 * time.Second
	// handoversLimit is how long handovers may take to resume after everything was healed. It
	// is a guard: a leader that is elected soon after a worker was lost waits for a lease of
	// 30 s.
	handoversLimit = 5 * time.Minute
	// calm is how long nothing is broken then.
	calm = 25 * time.Second
)

// Faults of TestALimitIsNeverHeldTwice. Those of workers hold up a few limits for a lease,
// and those of leaders all of them.
var (
	workersOfLimits = []string{"worker-sigkill", "worker-sigstop", "workers-cut-off", "worker-twice"}
	leadersOfLimits = []string{
		"leader-sigkill", "leader-sigstop", "leader-and-worker-sigkill", "leader-isolated", "minority-with-old-leader", "random-halves",
		"blackhole", "leader-serves-nobody",
	}
)

// TestALimitIsNeverHeldTwice gives workers many short tasks with limits, most of which are 1,
// kills leaders, and then breaks workers, then leaders and links, and then nothing until the
// limits are used again. Each task records when it begins and ends.
func TestALimitIsNeverHeldTwice(t *testing.T) {
	if os.Getenv(suiteVariable) != "limits" {
		t.Skip("make chaos-limits runs this")
	}
	o := defaults(t, 5)
	o.Disks, o.Handovers, o.Kills = false, true, firstKills
	o.Workers, o.Safety, o.MinKinds, o.MinHandovers = 4, 12*time.Second, 5, minHandovers
	o.Faults = slices.Concat(workersOfLimits, leadersOfLimits)
	r := startRun(t, o)
	began := time.Now()
	trouble := r.killLeadersOfLimits(t.Context())
	for trouble == nil && time.Since(began) < o.For {
		trouble = r.breakLimits(t.Context())
	}
	r.judge(t, trouble)
}

// killLeadersOfLimits kills leaders in a row while limits are used and all workers are known.
func (r *run) killLeadersOfLimits(ctx context.Context) error {
	if err := cluster.Pause(ctx, joined); err != nil {
		return err //nolint:wrapcheck // the error is complete
	}
	out, err := r.world.KillLeaders(ctx, r.o.Kills, func() int64 { return r.work.Tally().Ended })
	if out != nil {
		r.out.Add(out)
		r.world.Log("%d leaders killed in a row; killed → work resumed under another leader, and the killed one is back: %s", len(out.Steps), tookOf(out.Steps))
	}
	return err //nolint:wrapcheck // the error is complete
}

// breakLimits breaks workers, and then leaders and links, and returns when limits are handed
// over again and nothing was broken for some time.
func (r *run) breakLimits(ctx context.Context) error {
	for i, names := range [][]string{workersOfLimits, leadersOfLimits} {
		var faults []nemesis.Fault
		for _, f := range nemesis.All() {
			if slices.Contains(names, f.Name()) {
				faults = append(faults, f)
			}
		}
		safety := r.o.Safety
		if i > 0 {
			safety = 2 * time.Second // one draw
		}
		out, err := nemesis.Run(ctx, r.world, nemesis.Options{
			Seed: r.o.Seed + uint64(len(r.out.Steps)), Faults: faults, Phases: 1, Safety: safety, Pace: r.o.Pace, Most: r.o.Most, Alive: r.alive,
		})
		r.out.Add(out)
		if err != nil {
			return err
		}
	}
	if err := r.awaitHandovers(ctx); err != nil {
		return err
	}
	return cluster.Pause(ctx, calm) //nolint:wrapcheck // the error is complete
}

// awaitHandovers returns when more jobs have ended than limits are: each hands over one.
func (r *run) awaitHandovers(ctx context.Context) error {
	const jobs = 10
	from := r.work.Tally().Ended
	began := time.Now()
	err := cluster.Until(ctx, "limits are handed over again", handoversLimit, func(context.Context) error {
		if n := r.work.Tally().Ended - from; n < jobs {
			return fmt.Errorf("%d of %d jobs have ended", n, jobs)
		}
		return nil
	})
	r.world.Log("%d jobs with limits have ended %v after everything was healed", jobs, time.Since(began).Round(time.Millisecond))
	return err
}
