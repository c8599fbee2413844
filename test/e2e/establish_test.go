package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A replica that wins elections but cannot start the duties of the leader must not
// stay leader: it transfers leadership, and exits if that fails too.
func TestALeaderThatCannotStartItsDutiesIsReplaced(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"the barrier fails":        "step=barrier",
		"the sequencer hangs":      "step=sequencer&how=hang",
		"the first entry is stuck": "step=first-entry&how=hang",
		"the reconciler fails":     "step=membership",
		"a step never returns":     "step=sequencer&how=stick",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorProgram: cluster.FaultyCoordinator})
			first := clustertest.Leader(t, c)
			for _, n := range c.Followers(first) {
				clustertest.Must(t, n.Post(ctx, "/test/fail?"+query))
			}
			began := time.Now()
			clustertest.Must(t, first.Kill())
			if name == "a step never returns" { // the stuck process exits
				defer supervised(t, c)()
			}
			completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", ""))))
			t.Logf("a job was completed %v after the kill", time.Since(began).Round(time.Millisecond))
		})
	}
}

// supervised restarts coordinators that have exited, like a service manager, until
// end is called.
func supervised(t *testing.T, c *cluster.Cluster) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() {
		for cluster.Pause(ctx, 200*time.Millisecond) == nil {
			for _, n := range c.Coordinators() {
				if !n.Running() && n.Start(t.Context()) != nil { //nolint:contextcheck // the process outlives the supervisor
					t.Errorf("restarting %s failed", n.Name)
				}
			}
		}
	})
	return func() {
		cancel()
		looking.Wait()
	}
}
