package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// clusterService connects to one coordinator only.
func clusterService(t *testing.T, n *cluster.Coordinator) dtaskv1.ClusterServiceClient {
	t.Helper()
	conn, err := n.Dial()
	clustertest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return dtaskv1.NewClusterServiceClient(conn)
}

func TestEmptyReplicasStartedInAnyOrderFormOneCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.New(t, cluster.Config{Workers: 1})
	early := c.Workers()[0]
	clustertest.Must(t, early.Start(ctx)) // before any coordinator

	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	all := c.Coordinators()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, n := range all {
		if i > 0 {
			clustertest.Must(t, cluster.Pause(ctx, time.Duration(random.IntN(4000))*time.Millisecond))
		}
		t.Logf("seed %d: starting %s", seed, n.Name)
		clustertest.Must(t, n.Start(ctx))
	}
	clustertest.Must(t, c.AwaitReady(ctx))
	ids := map[string]bool{}
	for _, n := range all {
		clustertest.Must(t, cluster.Until(ctx, n.Name+" reports its cluster", guard, func(ctx context.Context) error {
			who, err := clusterService(t, n).Identify(ctx, &dtaskv1.IdentifyRequest{})
			if err != nil || who.GetClusterId() == "" {
				return errors.Join(err, cluster.ErrNotYet)
			}
			ids[who.GetClusterId()] = true
			return nil
		}))
	}
	if len(ids) != 1 {
		t.Errorf("got cluster IDs %v, want one", ids)
	}
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("first", cluster.Builtin("a", "noop", ""))))
}

func TestASecondProcessWithAKnownIDIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	leader := clustertest.Leader(t, c)
	original := c.Followers(leader)[0]
	refused := func(other *cluster.Coordinator) {
		t.Helper()
		clustertest.Must(t, other.Start(ctx))
		t.Cleanup(func() { clustertest.Must(t, other.Kill()) })
		limited, cancel := context.WithTimeout(ctx, guard)
		defer cancel()
		code, err := other.Wait(limited)
		if err != nil || code == 0 {
			t.Errorf("%s: got exit code %d, %v; want it to be refused and exit", other.Name, code, err)
		}
		if err := other.Get(ctx, "/readyz"); err == nil && !original.Running() {
			t.Errorf("%s reports ready, want an error", other.Name)
		}
	}
	beside, err := c.Imposter(ctx, original, true)
	clustertest.Must(t, err)
	refused(beside)
	clustertest.Must(t, original.Kill())
	instead, err := c.Imposter(ctx, original, false)
	clustertest.Must(t, err)
	refused(instead)

	clustertest.Must(t, original.Start(ctx))
	clustertest.Must(t, c.AwaitCaughtUp(ctx, original))
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", ""))))
}
