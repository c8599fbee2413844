package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// awaitPartialSnapshot waits until a coordinator is writing a snapshot.
func awaitPartialSnapshot(ctx context.Context, c *cluster.Cluster) (*cluster.Coordinator, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for _, n := range c.Coordinators() {
			partial, err := filepath.Glob(filepath.Join(n.DataDir, "snapshots", "*.tmp"))
			if err != nil {
				return nil, fmt.Errorf("listing snapshots: %w", err)
			}
			if len(partial) > 0 {
				return n, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for snapshot: %w", context.Cause(ctx))
		}
	}
}

// killedInASnapshot stores until a coordinator is writing a snapshot, and kills it
// immediately. It checks while it stores: a snapshot may start and finish before
// that has ended.
func killedInASnapshot(t *testing.T, c *cluster.Cluster, store func()) *cluster.Coordinator {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	var killed *cluster.Coordinator
	var err error
	done := make(chan struct{}) // closed after the two above are set
	go func() {
		defer close(done)
		if killed, err = awaitPartialSnapshot(ctx, c); err == nil {
			err = killed.Kill()
		}
	}()
	defer func() { // also if store ends the test
		cancel()
		<-done
	}()
	for {
		store()
		select {
		case <-done:
			clustertest.Must(t, err)
			return killed
		case <-time.After(12 * time.Second): // all took a snapshot unobserved; store more, so that they take another
		}
	}
}

func TestAKillDuringSnapshotAndRestoreLosesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// No worker: the stored jobs must be restored as they were.
	c := clustertest.Start(t, cluster.Config{CoordinatorFlags: snapshotFlags()})
	var stored []string
	payload := strings.Repeat("x", 16<<10)
	store := func() {
		for range 3 {
			var tasks []cluster.TaskFile
			for i := range 100 {
				tasks = append(tasks, cluster.Builtin(fmt.Sprintf("t%d", i), "noop", payload))
			}
			stored = append(stored, clustertest.Submit(t, c.Ctl, cluster.JobFile("kept", tasks...)))
		}
	}
	for range 4 {
		n := killedInASnapshot(t, c, store)
		// The coordinator reads its snapshot when it starts: kill it again while it
		// does.
		for range 3 {
			clustertest.Must(t, n.Start(ctx))
			clustertest.Must(t, cluster.Pause(ctx, time.Duration(5+rand.IntN(150))*time.Millisecond))
			clustertest.Must(t, n.Kill())
		}
		clustertest.Must(t, n.Start(ctx))
		clustertest.Must(t, c.AwaitCaughtUp(ctx, n))
	}
	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	clustertest.Must(t, c.Start(ctx))
	for _, id := range stored {
		job, err := c.Job(ctx, id)
		clustertest.Must(t, err)
		if job.State != "pending" || len(job.Tasks) != 100 {
			t.Errorf("job %s: got %s with %d tasks, want pending with 100", id, job.State, len(job.Tasks))
		}
	}
	clustertest.Must(t, c.AwaitEqual(ctx))
}

func TestAReplicaWithAFlippedFieldStops(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorProgram: cluster.FaultyCoordinator})
	flipped := filepath.Join(c.Dir, "flipped") // the damaged task does not begin before
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("flipped",
		gateTask("first", flipped), cluster.Builtin("second", "noop", "").After("first")))
	damaged := c.Followers(clustertest.Leader(t, c))[0]
	clustertest.Must(t, cluster.Until(ctx, "the follower has applied the job", guard, func(ctx context.Context) error {
		return damaged.Post(ctx, "/test/flip?job="+id+"&task=1")
	}))
	openGate(t, flipped)
	limited, cancel := context.WithTimeout(ctx, guard)
	defer cancel()
	code, err := damaged.Wait(limited)
	if err != nil || code == 0 {
		t.Errorf("the damaged replica: got exit code %d, %v; want it to stop by itself", code, err)
	}
	completed(t, c.Ctl, id)
	for _, n := range c.Coordinators() {
		if n != damaged && !n.Running() {
			t.Errorf("%s stopped too, want only the damaged replica", n.Name)
		}
	}
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", ""))))
	if _, err := os.Stat(damaged.DataDir); err != nil {
		t.Error(err)
	}
}

func TestAReleasedCoordinatorHasNoFaultSwitches(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	if err := c.Coordinators()[0].Post(t.Context(), "/test/flip?job=1&task=0"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v, want 404", err)
	}
}
