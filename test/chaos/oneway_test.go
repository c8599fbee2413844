package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/netns"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestALeaderCutOffInOneDirectionBelowTCPIsReplaced drops the packets that a
// leader sends to the other replicas, and then those that they send to it, in the
// kernel, where not even TCP acknowledgments pass. Work resumes each
// time within clustertest.FailoverLimit.
func TestALeaderCutOffInOneDirectionBelowTCPIsReplaced(t *testing.T) {
	suite := os.Getenv(suiteVariable)
	if suite != "smoke" && suite != "measure" {
		t.Skip("make chaos-smoke runs this")
	}
	if err := netns.Available(t.Context()); err != nil {
		t.Skipf("proxies cut links in one direction instead: %v", err)
	}
	network, err := netns.New(t.Context())
	clustertest.Must(t, err)
	t.Cleanup(func() {
		if err := network.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	hosts := make(map[string]*netns.Host)
	c := clustertest.New(t, cluster.Config{Workers: 2, WorkerProgram: cluster.MarkWorker, TLS: clustertest.TLS(t, suite == "smoke"), Address: func(ctx context.Context, name string) (string, error) {
		port := "7461"
		if hosts[name] == nil {
			port = "7460"
			var err error
			if hosts[name], err = network.Add(ctx, name); err != nil {
				return "", err
			}
		}
		return net.JoinHostPort(hosts[name].IP, port), nil
	}})
	for _, n := range c.Coordinators() {
		n.Through(hosts[n.Name].Prefix()...)
	}
	clustertest.Must(t, c.Start(t.Context()))
	for _, out := range []bool{true, false, true, false} {
		leader := clustertest.Leader(t, c)
		others := c.Followers(leader)
		ends := func(o *cluster.Coordinator) (from, to string) {
			if out {
				return leader.Name, o.Name
			}
			return o.Name, leader.Name
		}
		began := time.Now()
		for _, o := range others {
			from, to := ends(o)
			clustertest.Must(t, network.Cut(t.Context(), from, to))
		}
		id, err := c.At(others...).Submit(t.Context(), cluster.JobFile("oneway", cluster.Builtin("a", "echo", "x")))
		clustertest.Must(t, err)
		shown, err := c.At(others...).AwaitEnd(t.Context(), id, endLimit)
		clustertest.Must(t, err)
		if shown.State != "completed" {
			t.Errorf("the job is %s, want completed", shown.State)
		}
		took, what := time.Since(began), fmt.Sprintf("packets lost below TCP, %s the leader → a new job completed", map[bool]string{true: "from", false: "to"}[out])
		t.Logf("| %-62s | %7s |", what, took.Round(time.Millisecond))
		if err := clustertest.WithinFailoverLimit(what, took); err != nil {
			t.Error(err)
		}
		for _, o := range others {
			from, to := ends(o)
			clustertest.Must(t, network.Heal(t.Context(), from, to))
		}
		clustertest.Must(t, c.AwaitCaughtUp(t.Context(), leader))
	}
	clustertest.Must(t, c.AwaitEqual(t.Context()))
}
