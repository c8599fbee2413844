package simulation_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/record"
)

var (
	clusterHours = flag.Float64("cluster.hours", 0, "minimum number of cluster hours to simulate, in whole lives of clusters (default: a few minutes)")
	clusterSeed  = flag.Uint64("cluster.seed", 0, "first seed (default: the next after those of the record, or 1)")
)

// TestAClusterLosesNothing runs whole clusters with all kinds of faults.
func TestAClusterLosesNothing(t *testing.T) {
	t.Parallel()
	if *clusterHours == 0 {
		l := drawLife(1, "storms")
		l.pace, l.length, l.every = 1, 5*time.Minute, 5*time.Second
		if testing.Short() {
			l.length = time.Minute
		}
		synctest.Test(t, func(t *testing.T) { live(t, 1, l) })
		return
	}
	debug.SetGCPercent(400)
	// A long run updates the record often, so that it can be killed.
	hours := time.Duration(*clusterHours * float64(time.Hour))
	processors, losses := runtime.GOMAXPROCS(0), 0
	for first, done := firstSeed(t), time.Duration(0); done < hours && !t.Failed(); {
		seeds := 0
		for left := hours - done; left > 0 && seeds < processors; seeds++ {
			left -= drawLife(first+uint64(seeds), *clusterKind).length //nolint:gosec // not negative
		}
		total := simulate(t, first, seeds, processors)
		done += time.Duration(total.VirtualSeconds * float64(time.Second))
		first += uint64(seeds) //nolint:gosec // not negative
		losses += total.LeaderLosses
		if t.Failed() {
			total.Failed = t.Name()
		}
		if err := record.AppendIfAsked(t.Context(), &total); err != nil {
			t.Error(err)
		}
	}
	if losses < *clusterLosses {
		t.Errorf("got %d leader losses, want at least %d", losses, *clusterLosses)
	}
}

// firstSeed returns the requested seed, or the next one after the record's
// last.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if *clusterSeed > 0 {
		return *clusterSeed
	}
	runs, err := record.Read(os.Getenv(record.Env))
	if err != nil {
		t.Fatal(err)
	}
	return record.Next(runs, "cluster")
}

// simulate runs clusters one after another on each processor and logs the
// totals.
func simulate(t *testing.T, first uint64, seeds, processors int) record.Run {
	t.Helper()
	total := record.Run{Suite: "cluster", Seed: first, LogStore: cmp.Or(storeKind, "bolt"), Faults: map[string]int{}}
	var mu sync.Mutex // guards total
	var next atomic.Int64
	began := time.Now()
	var running sync.WaitGroup
	for range processors {
		running.Go(func() {
			for n := next.Add(1) - 1; n < int64(seeds) && !t.Failed(); n = next.Add(1) - 1 {
				seed := first + uint64(n) //nolint:gosec // not negative
				l, start := drawLife(seed, *clusterKind), time.Now()
				synctest.Test(t, func(t *testing.T) {
					r := live(t, seed, l)
					mu.Lock()
					defer mu.Unlock()
					add(&total, &r)
					t.Logf("seed %d: %v at pace %v, %d leader losses, %d tasks", seed, l.length, l.pace, r.LeaderLosses, r.Tasks)
				})
				t.Logf("seed %d took %v", seed, time.Since(start).Round(time.Millisecond))
			}
		})
	}
	running.Wait()
	total.Seconds = time.Since(began).Seconds()
	t.Logf("%d clusters from seed %d on: %.0f virtual s in %.0f s (%.0f virtual s/s), %.0f of them at product pace, %d leader losses, %d tasks, %d lost, %d diverged, faults %v",
		total.Seeds, total.Seed, total.VirtualSeconds, total.Seconds, total.VirtualSeconds/total.Seconds, total.ProductSeconds, total.LeaderLosses, total.Tasks, total.Lost, total.Diverged, total.Faults)
	if t.Failed() {
		t.Logf("commit %s", record.Commit(t.Context()))
	}
	return total
}

func add(sum, r *record.Run) {
	sum.Seeds++
	sum.VirtualSeconds += r.VirtualSeconds
	sum.ProductSeconds += r.ProductSeconds
	sum.PacedSeconds += r.PacedSeconds
	sum.LeaderLosses += r.LeaderLosses
	sum.Tasks += r.Tasks
	sum.Lost += r.Lost
	sum.Diverged += r.Diverged
	for k, n := range r.Faults {
		sum.Faults[k] += n
	}
}

// live runs one cluster: its storms, and the calm after them, in which all jobs
// must end.
func live(t *testing.T, seed uint64, l life) record.Run {
	t.Helper()
	c := newCluster(t, seed, l)
	storm, over := context.WithTimeout(t.Context(), c.length)
	defer over()
	c.running.Go(func() { c.ledger.submit(storm, 8*time.Second) })
	c.nemesis(storm.Done())
	c.calm.Store(false)
	c.rest()
	c.compare()
	lived := time.Since(c.began).Seconds()
	r := record.Run{
		VirtualSeconds: lived, PacedSeconds: lived / float64(c.pace), LeaderLosses: int(c.terms.Load()) - 1, Tasks: c.ledger.tasks,
		Faults: c.fired, Lost: int(c.lost.Load()), Diverged: int(c.diverged.Load()),
	}
	if c.pace == 1 {
		r.ProductSeconds = lived
	}
	c.stopAll()
	return r
}

// rest waits for the end of all jobs.
func (c *cluster) rest() {
	limit := time.Now().Add(c.pace.Scale(jobLimit))
	for c.ledger.isOpen() > 0 && time.Now().Before(limit) && !c.t.Failed() {
		<-time.After(c.pace.Scale(time.Second))
		c.revive()
	}
	if n := c.ledger.isOpen(); n > 0 {
		c.fail("%d jobs have not ended", n)
	}
}

// compare checks that all replicas have the same digest at the same index. A replica
// that has just restarted knows only the digests of entries since its snapshot, so that
// entries are added meanwhile; one that has just stopped itself is started again.
func (c *cluster) compare() {
	defer c.rest()
	ctx, cancel := context.WithCancel(c.t.Context())
	var submitting sync.WaitGroup
	submitting.Go(func() { c.ledger.submit(ctx, 2*time.Second) })
	defer submitting.Wait()
	defer cancel()
	limit := time.Now().Add(c.pace.Scale(time.Minute))
	for !c.t.Failed() {
		c.revive()
		seen, known := make(map[uint64][]uint64), ""
		for _, r := range c.replicas {
			list := c.digests(r)
			known += "; " + describe(r, list)
			for _, d := range list {
				seen[d.GetIndex()] = append(seen[d.GetIndex()], d.GetValue())
			}
		}
		common := false
		for index, values := range seen {
			if len(slices.Compact(values)) > 1 {
				c.diverged.Add(1)
				c.fail("the replicas differ at index %d: got digests %x", index, values)
			}
			common = common || len(values) == replicaCount
		}
		switch {
		case common:
			return
		case time.Now().After(limit):
			c.fail("the replicas have no common entry a minute after the last fault%s", known)
		}
		<-time.After(c.pace.Scale(time.Second))
	}
}

// describe says which entries a replica has digests of.
func describe(r *replica, list []*dtaskv1.Digest) string {
	switch {
	case r.ended():
		return r.id + " has stopped"
	case len(list) == 0:
		return r.id + " knows no digest"
	}
	return fmt.Sprintf("%s knows digests of %d to %d", r.id, list[0].GetIndex(), list[len(list)-1].GetIndex())
}

func (c *cluster) digests(r *replica) []*dtaskv1.Digest {
	conn, err := grpc.NewClient("passthrough:///"+r.address, c.secrets.asReplica(), grpc.WithContextDialer(c.caller().Dial))
	if err != nil {
		c.fail("%v", err)
		return nil
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, err := dtaskv1.NewClusterServiceClient(conn).Digests(ctx, &dtaskv1.DigestsRequest{})
	if err != nil {
		return nil // the caller retries
	}
	return got.GetDigests()
}

// stopAll ends everything. A goroutine that doesn't end keeps the bubble from
// ending, and the test fails.
func (c *cluster) stopAll() {
	if err := c.client.Close(); err != nil {
		c.fail("%v", err)
	}
	for _, w := range c.workers {
		w.cancel()
	}
	for _, r := range c.replicas {
		r.process.cancel()
	}
	c.running.Wait()
	// The bubble's time ends with this goroutine, and what a process left behind when it
	// stopped itself may wait for a timeout.
	<-time.After(c.pace.Scale(time.Minute))
	if verbose {
		fmt.Println("all processes have ended")
	}
}
