package chaos

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestNothingHealthyIsReplaced saturates the processors under a steady load, for half
// of DTASK_CHAOS_MINUTES each without and with a round trip of 40 ms between all
// processes: no leader is deposed, and no worker is marked down.
func TestNothingHealthyIsReplaced(t *testing.T) {
	if os.Getenv(suiteVariable) != "saturated" {
		t.Skip("make chaos-saturated runs this")
	}
	length := time.Duration(number(t, minutesVariable, 5.0) * float64(time.Minute) / 2)
	for name, delay := range map[string]time.Duration{"on loopback": 0, "with a round trip of 40 ms": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { saturated(t, delay, length) })
	}
}

func saturated(t *testing.T, delay, length time.Duration) {
	t.Helper()
	ctx := t.Context()
	c := clustertest.New(t, cluster.Config{Workers: 3, Slots: 8, TLS: clustertest.TLS(t, false), WorkerProgram: cluster.MarkWorker, CoordinatorProgram: cluster.FaultyCoordinator})
	links, err := nemesis.OpenNet(ctx, c)
	clustertest.Must(t, err)
	t.Cleanup(func() {
		if err := links.Close(); err != nil {
			t.Error(err)
		}
	})
	clustertest.Must(t, links.Spread(delay))
	clustertest.Must(t, c.Start(ctx))
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }()
	before, status := upSince(t, c), leadership(t, c)

	stop, err := nemesis.Spin(ctx, c.Dir, 4*runtime.NumCPU())
	clustertest.Must(t, err)
	limited, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	jobs := 0
	for limited.Err() == nil {
		job, err := flow(2000)
		clustertest.Must(t, err)
		submitted, err := cl.Submit(limited, job, client.SubmitOptions{})
		if err == nil {
			_, err = cl.Wait(limited, submitted.ID)
		}
		if err != nil && limited.Err() == nil {
			t.Fatal(err)
		}
		jobs++
	}
	clustertest.Must(t, errors.Join(stop(), cluster.Pause(ctx, time.Second)))
	after := leadership(t, c)
	if after.Leader != status.Leader || after.Term != status.Term {
		t.Errorf("%s leads term %d; before, %s led term %d", after.Leader, after.Term, status.Leader, status.Term)
	}
	for name, since := range upSince(t, c) {
		if !since.Equal(before[name]) {
			t.Errorf("worker %s was marked down: up since %v, before since %v", name, since, before[name])
		}
	}
	t.Logf("%v with %d busy processes on %d processors, %d jobs of 2,000 tasks: %s led term %d", length, 4*runtime.NumCPU(), runtime.NumCPU(), jobs, after.Leader, after.Term)
}

// leadership returns the cluster's status when it has a leader.
func leadership(t *testing.T, c *cluster.Cluster) cluster.Status {
	t.Helper()
	clustertest.Leader(t, c)
	status, err := c.Status(t.Context())
	clustertest.Must(t, err)
	return status
}
