package scenario

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

// TestPowerCuts repeatedly cuts the power of one coordinator or of all while jobs
// run. Each victim restarts with its synced data and some of its unsynced data. Every
// second cluster has TLS and identities.
func TestPowerCuts(t *testing.T) {
	seed := seedOf(t)
	begun := time.Now()
	total := record.Run{Suite: "powercut", Seed: seed, LogStore: cmp.Or(os.Getenv(cluster.StoreVariable), "bolt"), Faults: map[string]int{}}
	record.AtEnd(t, &total)
	var loss faultfs.Loss
	left := int(number(t, "DTASK_POWERCUTS", 6)) //nolint:gosec // a small number
	each, secured := roundsPerCluster(left), 0
	for life := uint64(0); left > 0 && !t.Failed(); life++ {
		r := startLife(t, seed+life, "--snapshot-bytes", "65536")
		r.begin(t, seed+life)
		for range min(left, each) {
			r.awaitBegun(t, 4+r.random.IntN(20))
			clustertest.Must(t, cluster.Pause(t.Context(), time.Duration(r.random.IntN(100))*time.Millisecond))
			victims, kind := r.c.Coordinators(), "F43"
			switch total.PowerCuts % 3 {
			case 0:
				victims, kind = []*cluster.Coordinator{clustertest.Leader(t, r.c)}, "F42"
			case 1:
				victims, kind = []*cluster.Coordinator{r.follower(t)}, "F42"
			}
			for _, n := range victims {
				r.busy(t, n) // so that the cut hits syncs in progress
			}
			r.awaitBegun(t, 2)
			lost := r.cut(t, victims...)
			loss.Kept, loss.Dropped, loss.Torn, loss.Names = loss.Kept+lost.Kept, loss.Dropped+lost.Dropped, loss.Torn+lost.Torn, loss.Names+lost.Names
			for _, n := range victims {
				clustertest.Must(t, n.Start(t.Context()))
			}
			for _, n := range victims {
				clustertest.Must(t, r.c.AwaitCaughtUp(t.Context(), n))
			}
			total.Faults[kind]++
			total.PowerCuts++
			if r.c.Secured() {
				secured++
			}
			left--
		}
		j := r.load.judge(t)
		total.Tasks, total.Lost, total.Duplicated, total.Diverged = total.Tasks+j.tasks, total.Lost+j.lost, total.Duplicated+j.duplicated, total.Diverged+j.diverged
		r.stopAll(t)
	}
	total.Seconds = time.Since(begun).Seconds()
	t.Logf("%d power cuts (%d of one, %d of all; %d with TLS): %d tasks, %d lost, %d accepted twice, %d diverged; unsynced writes: %d kept, %d dropped, %d torn, and %d names lost",
		total.PowerCuts, total.Faults["F42"], total.Faults["F43"], secured, total.Tasks, total.Lost, total.Duplicated, total.Diverged, loss.Kept, loss.Dropped, loss.Torn, loss.Names)
}

// cut cuts the power of several disks at once and restores it; their coordinators
// are killed in between.
func (r *rig) cut(t *testing.T, victims ...*cluster.Coordinator) faultfs.Loss {
	t.Helper()
	var together sync.WaitGroup
	errs := make([]error, len(victims))
	for i, n := range victims {
		together.Go(func() { errs[i] = errors.Join(r.disk(n).PowerOff(), n.Kill()) })
	}
	together.Wait()
	clustertest.Must(t, errors.Join(errs...))
	var loss faultfs.Loss
	for _, n := range victims {
		seed := r.random.Uint64()
		l, err := r.disk(n).PowerOn(seed)
		clustertest.Must(t, err)
		loss.Kept, loss.Dropped, loss.Torn, loss.Names = loss.Kept+l.Kept, loss.Dropped+l.Dropped, loss.Torn+l.Torn, loss.Names+l.Names
	}
	return loss
}

// stopAll stops a cluster before the end of the test, to make room for the next one.
func (r *rig) stopAll(t *testing.T) {
	t.Helper()
	clustertest.Must(t, r.c.Close())
}

// busy makes each sync of a coordinator as slow as on a slow device.
func (r *rig) busy(t *testing.T, n *cluster.Coordinator) {
	t.Helper()
	_, err := r.disk(n).Slow(faultfs.Sync, "", time.Duration(5+r.random.IntN(30))*time.Millisecond)
	clustertest.Must(t, err)
}

// One with TLS, and one without.
func TestTwoRoundsHaveTwoClusters(t *testing.T) {
	t.Parallel()
	for rounds, want := range map[int]int{1: 1, 2: 1, 5: 3, 20: 10, 100: 10} {
		if got := roundsPerCluster(rounds); got != want {
			t.Errorf("%d rounds: a cluster has %d of them, want %d", rounds, got, want)
		}
	}
}
