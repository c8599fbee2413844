package e2e

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// fairnessVariable lets the tests of fair shares run, which make fairness sets: they take
// minutes, and need a machine that is not busy.
const fairnessVariable = "DTASK_FAIRNESS"

func onlyForFairness(t *testing.T) {
	t.Helper()
	if os.Getenv(fairnessVariable) == "" {
		t.Skipf("it takes minutes; make fairness runs it (%s)", fairnessVariable)
	}
}

// submitAs submits a job file as an owner, and returns the ID.
func submitAs(t *testing.T, c *client.Client, owner, file string) string {
	t.Helper()
	job, err := spec.Parse("job.yaml", []byte(file), spec.Options{Owner: owner})
	clustertest.Must(t, err)
	got, err := c.Submit(t.Context(), job, client.SubmitOptions{})
	clustertest.Must(t, err)
	return got.ID
}

// arrayOfSleeps is a job of n tasks which sleep for a duration.
func arrayOfSleeps(name, queue, priority string, n int, d time.Duration) string {
	task := cluster.Builtin("a", "sleep", d.String())
	task["array"] = map[string]any{"range": fmt.Sprintf("0-%d", n-1)}
	return cluster.JobFileWith(map[string]any{"name": name, "queue": queue, "priority": priority}, task)
}

// Queues of the weights 1, 2 and 4, all of which have tasks waiting, hold 1/7, 2/7 and 4/7 of
// the slots, within 1.5 slots at every look, although the leader is killed every 10 s.
func TestQueuesHoldTheirSharesAcrossLeaders(t *testing.T) {
	onlyForFairness(t)
	const slots, kills = 28, 5
	shares := map[string]float64{"one": slots / 7, "two": slots * 2 / 7, "four": slots * 4 / 7}
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: slots / 2})
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }() // nothing is written
	for name, weight := range map[string]string{"one": "1", "two": "2", "four": "4"} {
		clustertest.Must(t, c.Run(t.Context(), "queue", "set", name, "--weight", weight).Err())
		submitAs(t, cl, "alice", arrayOfSleeps(name, name, "normal", 100_000, 700*time.Millisecond))
	}
	clustertest.Must(t, cluster.Pause(t.Context(), 3*time.Second)) // what the first queue got when it was alone has ended
	looks, worst := 0, 0.0
	look := func(ctx context.Context) error {
		list, err := cl.Queues(ctx, client.ReadOptions{})
		if err != nil {
			return fmt.Errorf("listing queues: %w", err)
		}
		sum, most := uint64(0), 0.0
		for _, q := range list {
			if share, known := shares[q.GetName()]; known {
				sum += q.GetRunning()
				most = max(most, math.Abs(float64(q.GetRunning())-share))
			}
		}
		if sum != slots {
			return fmt.Errorf("%w: %d of %d slots are in use", cluster.ErrNotYet, sum, slots)
		}
		looks++
		worst = max(worst, most)
		return nil
	}
	for kill := range kills + 1 {
		if kill > 0 {
			leader := clustertest.Leader(t, c)
			clustertest.Must(t, leader.Kill())
			_, err := c.AwaitLeaderOtherThan(t.Context(), leader)
			clustertest.Must(t, err)
			clustertest.Must(t, leader.Start(t.Context()))
			clustertest.Must(t, c.AwaitReady(t.Context()))
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			clustertest.Must(t, cluster.Until(t.Context(), "all slots are in use", guard, look))
			clustertest.Must(t, cluster.Pause(t.Context(), 20*time.Millisecond))
		}
	}
	t.Logf("%d looks, %d leaders killed: at most %.2f slots from the share", looks, kills, worst)
	if worst > 1.5 {
		t.Errorf("a queue was %.2f slots from its share, want at most 1.5", worst)
	}
}

// behindAMillion starts a cluster of 64 slots, and returns a function that fills it: a million
// tasks of a second and of low priority wait then.
func behindAMillion(t *testing.T) (c *cluster.Cluster, cl *client.Client, fill func()) {
	t.Helper()
	const slots, waiting = 64, 1_000_000
	c = clustertest.Start(t, cluster.Config{Workers: 4, Slots: slots / 4})
	cl, err := c.Client()
	clustertest.Must(t, err)
	t.Cleanup(func() { _ = cl.Close() }) // nothing is written
	return c, cl, func() {
		submitAs(t, cl, "alice", arrayOfSleeps("low", "default", "low", waiting, time.Second))
		clustertest.Must(t, cluster.Pause(t.Context(), 3*time.Second)) // all slots are in use
	}
}

// Behind a million tasks of low priority, an urgent task of another owner begins when the next
// slot is free.
func TestAnUrgentTaskOfAnotherOwnerDoesNotWait(t *testing.T) {
	onlyForFairness(t)
	const rounds, limit = 100, 1050 * time.Millisecond
	c, cl, fill := behindAMillion(t)
	fill()
	worst := time.Duration(0)
	for range rounds {
		id := submitAs(t, cl, "bob", arrayOfSleeps("urgent", "default", "urgent", 1, time.Millisecond))
		job, err := c.AwaitEnd(t.Context(), id, guard)
		clustertest.Must(t, err)
		worst = max(worst, job.StartedAt.Sub(*job.SubmittedAt))
	}
	t.Logf("%d urgent tasks behind a million: started within %v", rounds, worst)
	if worst > limit {
		t.Errorf("an urgent task started after %v, want at most %v", worst, limit)
	}
}

// A job of ten tasks takes at most 2.2 times as long behind a million tasks of another owner,
// with the same priority and as long ones, as alone.
func TestASmallJobOfAnotherOwnerTakesTwiceAsLongAtMost(t *testing.T) {
	onlyForFairness(t)
	const rounds, limit = 10, 2.2
	c, cl, fill := behindAMillion(t)
	took := func() time.Duration {
		id := submitAs(t, cl, "bob", arrayOfSleeps("small", "default", "low", 10, time.Second))
		job, err := c.AwaitEnd(t.Context(), id, guard)
		clustertest.Must(t, err)
		return job.CompletedAt.Sub(*job.SubmittedAt)
	}
	alone := took()
	fill()
	worst := time.Duration(0)
	for range rounds {
		worst = max(worst, took())
	}
	ratio := worst.Seconds() / alone.Seconds()
	t.Logf("%d jobs of ten tasks behind a million: within %v, %.2f times the %v of one alone", rounds, worst, ratio, alone)
	if ratio > limit {
		t.Errorf("a job of ten tasks took %.2f times as long as alone, want at most %.1f", ratio, limit)
	}
}
