package scenario

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestEveryDiskFaultHeals applies every kind of disk fault of a nemesis, one after
// another, to one cluster.
func TestEveryDiskFaultHeals(t *testing.T) {
	r := start(t, seedOf(t))
	r.begin(t, r.seed)
	for _, trouble := range faultfs.Troubles() {
		r.awaitBegun(t, 3)
		victims := r.c.Coordinators()
		if !trouble.All {
			victims = []*cluster.Coordinator{victims[r.random.IntN(len(victims))]}
		}
		hold := 100*time.Millisecond + time.Duration(r.random.IntN(2000))*time.Millisecond
		err := trouble.Apply(t.Context(), r.disks, victims, hold, r.random)
		r.areBack(t, victims)
		if errors.Is(err, faultfs.ErrMissed) {
			t.Logf("not counted: %v", err)
			continue
		}
		clustertest.Must(t, err)
		r.fired(trouble.Kind)
	}
	r.judge(t)
}

// steady is for how long coordinators are ready before they are back: one that exits
// because of a fault that has ended may be ready until then.
const steady = time.Second

// areBack waits until coordinators have been ready for a second. It restarts those that
// have exited or exit meanwhile.
func (r *rig) areBack(t *testing.T, some []*cluster.Coordinator) {
	t.Helper()
	var since time.Time // all are ready; zero if one is not
	clustertest.Must(t, cluster.Until(t.Context(), "the victims are back", 5*guard, func(ctx context.Context) error {
		var errs []error
		for _, n := range some {
			if !n.Running() {
				clustertest.Must(t, n.Start(t.Context())) //nolint:contextcheck // the process outlives the wait
			}
			errs = append(errs, n.Get(ctx, "/readyz"))
		}
		if err := errors.Join(errs...); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < steady {
			return cluster.ErrNotYet
		}
		return nil
	}))
}
