package scenario

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/faultfs/mount"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

// guard bounds every wait: it keeps a broken test from hanging.
const guard = time.Minute

// maxRoundsPerCluster bounds how many power cuts or flipped bits one cluster has.
const maxRoundsPerCluster = 10

// exitFatal is the exit code of dtaskd when its store failed or is damaged.
const exitFatal = 70

// program builds faultfsd once for all tests.
var program = sync.OnceValues(func() (string, error) {
	return faultfs.Build(context.Background(), os.Getenv(cluster.BinVariable))
})

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// number returns a number from the environment, or the default.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	given := os.Getenv(name)
	if given == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// seedOf returns the seed of a test and prints it with the line that repeats the
// test.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := number(t, "DTASK_CHAOS_SEED", rand.Uint64N(1_000_000))
	tls := ""
	if value := os.Getenv(clustertest.TLSVariable); value != "" {
		tls = clustertest.TLSVariable + "=" + value + " "
	}
	t.Logf("replay: %sDTASK_CHAOS_SEED=%d go test -count=1 -v -run '^%s$' ./test/chaos/faultfs/scenario", tls, seed, t.Name())
	return seed
}

// A rig is a cluster on disks, with a load.
type rig struct {
	*load

	c      *cluster.Cluster
	disks  faultfs.Disks
	seed   uint64
	random *rand.Rand // of the test's own goroutine
	faults map[string]int
	line   *record.Run // what the record gets; nil after startLife
}

// fired records that a kind of fault fired.
func (r *rig) fired(kind string) { r.faults[kind]++ }

// judge judges the load, and fills in what the record gets.
func (r *rig) judge(t *testing.T) {
	t.Helper()
	j := r.load.judge(t)
	r.line.Tasks, r.line.Lost, r.line.Duplicated, r.line.Diverged = j.tasks, j.lost, j.duplicated, j.diverged
}

// ops is a list of operations.
func ops(some ...mount.Op) []mount.Op { return some }

// awaitFired waits until a fault has affected an operation.
func (r *rig) awaitFired(t *testing.T, f *faultfs.Fault) {
	t.Helper()
	clustertest.Must(t, cluster.Until(t.Context(), "the fault fires", guard, func(context.Context) error {
		now, err := f.Now()
		if err == nil && now.Fired == 0 {
			err = cluster.ErrNotYet
		}
		return err
	}))
}

// roundsPerCluster returns after how many rounds of a test its cluster is checked and
// replaced. A test of two or more has clusters with TLS and without.
func roundsPerCluster(rounds int) int { return min(maxRoundsPerCluster, (rounds+1)/2) }

// start starts a cluster on disks, and adds the test to the record when it ends,
// whether or not it got as far as judge.
func start(t *testing.T, seed uint64, flags ...string) *rig {
	t.Helper()
	line := &record.Run{Suite: "chaos", Seed: seed}
	record.AtEnd(t, line)
	r := prepare(t, seed, flags...)
	r.line, line.LogStore, line.Faults = line, r.c.LogStore(), r.faults
	clustertest.Must(t, r.c.Start(t.Context()))
	return r
}

// startLife is start for one of several clusters of a test, which keeps the record itself.
func startLife(t *testing.T, seed uint64, flags ...string) *rig {
	t.Helper()
	r := prepare(t, seed, flags...)
	clustertest.Must(t, r.c.Start(t.Context()))
	return r
}

// prepare makes a cluster on disks, with TLS and identities if the seed is odd. Its
// processes and disks end with the test. If the test failed, the contents of the disks are
// kept beside the logs.
func prepare(t *testing.T, seed uint64, flags ...string) *rig {
	t.Helper()
	if err := faultfs.Available(); err != nil {
		t.Skip(err)
	}
	path, err := program()
	clustertest.Must(t, err)
	c := clustertest.New(t, cluster.Config{Workers: 2, Slots: 6, TLS: clustertest.TLSOf(t, seed), CoordinatorFlags: flags, DataDirectory: faultfs.DataDirectory})
	disks, err := faultfs.Attach(t.Context(), path, c)
	clustertest.Must(t, err)
	r := &rig{c: c, disks: disks, seed: seed, random: rand.New(rand.NewPCG(seed, 1000)), faults: map[string]int{}}
	r.load = newLoad(c, filepath.Join(c.Dir, "ledger"))
	t.Cleanup(func() {
		r.load.end()
		for _, d := range disks {
			if err := d.Heal(); err != nil { // otherwise no process could exit
				t.Error(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			if err := disks.Export(); err != nil {
				t.Error(err)
			}
		}
		if err := disks.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// disk returns the disk of a coordinator.
func (r *rig) disk(n *cluster.Coordinator) *faultfs.Disk { return r.disks[n.Name] }

// follower returns a random follower.
func (r *rig) follower(t *testing.T) *cluster.Coordinator {
	t.Helper()
	others := r.c.Followers(clustertest.Leader(t, r.c))
	return others[r.random.IntN(len(others))]
}

// back restarts a coordinator and waits until it has caught up.
func (r *rig) back(t *testing.T, n *cluster.Coordinator) {
	t.Helper()
	clustertest.Must(t, n.Start(t.Context()))
	clustertest.Must(t, r.c.AwaitCaughtUp(t.Context(), n))
}

// ends waits until a coordinator has exited by itself, because of its disk.
func (r *rig) ends(t *testing.T, n *cluster.Coordinator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	code, err := n.Wait(ctx)
	clustertest.Must(t, err)
	if code != exitFatal {
		t.Errorf("%s: got exit code %d, want %d: its disk failed", n.Name, code, exitFatal)
	}
}
