package scenario

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs/diskfault"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestRandomDiskFaultsLoseNothing draws disk faults by a seeded plan, up to three at
// once. DTASK_CHAOS_PHASES sets the number of phases, of half a minute each.
func TestRandomDiskFaultsLoseNothing(t *testing.T) {
	r := start(t, seedOf(t), "--snapshot-bytes", "65536")
	r.begin(t, r.seed)
	world, err := nemesis.NewWorld(r.c, nil, r.seed, r.path, t.Logf)
	clustertest.Must(t, err)
	nursing, end := context.WithCancel(t.Context())
	nursed := make(chan error, 1)
	go func() { nursed <- world.Nurse(nursing) }()
	out, err := nemesis.Run(t.Context(), world, nemesis.Options{
		Seed: r.seed, Faults: diskfault.Faults(r.disks), Phases: int(number(t, "DTASK_CHAOS_PHASES", 1)), //nolint:gosec // a small number
		Safety: 25 * time.Second, Pace: 4 * time.Second, Most: 5 * time.Second,
		Alive: func(ctx context.Context) error {
			if err := r.c.AwaitReady(ctx); err != nil {
				return err
			}
			r.awaitBegun(t, 5) //nolint:contextcheck // it has a limit of its own
			return nil
		},
	})
	end()
	clustertest.Must(t, errors.Join(err, <-nursed, world.Close()))
	t.Logf("%v", out.Names)
	for kind, times := range out.Fired {
		r.faults[kind] += times
	}
	if len(out.Fired) == 0 {
		t.Error("no fault fired")
	}
	r.areBack(t, r.c.Coordinators()) // one may exit after the nurse has ended
	clustertest.Must(t, r.c.AwaitReady(t.Context()))
	r.judge(t)
}
