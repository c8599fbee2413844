package e2e

import (
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A cluster without faults. Its subtests are independent: they run one after
// another, each with its own jobs.
func TestAHealthyCluster(t *testing.T) { //nolint:tparallel // its subtests share the cluster
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 8})
	for _, story := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster)
	}{
		{"a diamond runs in order", diamond},
		{"a chain of 1000 runs in order", chain},
		{"a fan of 10000 runs in order", fan},
		{"random graphs end as their reference models", randomGraphs},
		{"every exit code", exitCodes},
		{"commands run as jobs", runsCommands},
		{"jobs need other jobs", needsOtherJobs},
		{"conditions decide what runs", conditionsDecide},
		{"cancel leaves no process", cancelKills},
		{"cleanup runs after every end of a job", cleansUp},
		{"a client that knows only a follower can do everything", followersOnly},
		{"a bench measures and cleans up", benches},
		{"silent and foreign connections cause no delay", strangeConnections},
	} {
		t.Run(story.name, func(t *testing.T) { story.run(t, c) })
	}
}
