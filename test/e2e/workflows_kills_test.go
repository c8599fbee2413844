package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
	"github.com/dtask/dtask/test/workflows"
)

const (
	// workflowsVariable is "all" for commands of all workflows instead of some.
	workflowsVariable = "DTASK_WORKFLOWS"
	// sampleGraphs and sampleTasks bound the workflows that run as commands by default.
	sampleGraphs, sampleTasks = 20, 2000
	// leaderKills is how many leaders are killed, with another one for each so many tasks.
	leaderKills, tasksOfKill = 5, 2000
	// minKillsOfWork is during how many kills commands must run, or little is proven.
	minKillsOfWork = 3
)

// TestWorkflowsOfCommandsSurviveKilledLeaders runs workflows as commands, each of which
// writes to the ledger when it begins and ends, while one leader after another is killed.
// By the ledger's clock each command begins after those that it depends on have ended,
// and no command runs twice, because no worker was harmed. The test does not run
// concurrently with others, because it saturates the machine.
func TestWorkflowsOfCommandsSurviveKilledLeaders(t *testing.T) {
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 8})
	graphs := workflows.Collection(workflowsSeed)
	if os.Getenv(workflowsVariable) != "all" {
		graphs = workflows.Sample(graphs, sampleGraphs, sampleTasks)
	}
	total := 0
	for _, g := range graphs {
		total += len(g.Tasks)
	}
	random := rand.New(rand.NewPCG(workflowsSeed, 0))
	files := writeWorkflows(t, graphs, func(task workflows.Task) cluster.TaskFile {
		return c.Programs.Mark(task.ID, ledgerOf(c), time.Duration(50+random.IntN(100))*time.Millisecond)
	})
	began := time.Now()
	ids := submitWorkflows(t, c, graphs, files)
	kills := killLeaders(t, c, total)
	limit := guard + time.Duration(total)*50*time.Millisecond
	var jobs []ledger.Job
	for i, job := range completedWorkflows(t, c, graphs, ids, limit) {
		jobs = append(jobs, judged(job, graphs[i].After()))
	}
	checkLedger(t, c, nil, jobs...)
	runs := ledger.Runs(readLedger(t, c))
	if len(runs) != total {
		t.Errorf("got %d runs of %d tasks, want one of each", len(runs), total)
	}
	through := 0
	for _, at := range kills {
		if slices.ContainsFunc(runs, func(r ledger.Run) bool { return r.Start < at && at < r.End }) {
			through++
		}
	}
	t.Logf("%d commands of %d workflows after %v; %d leaders killed, %d of them while commands ran", total, len(graphs), time.Since(began), len(kills), through)
	if through < minKillsOfWork {
		t.Errorf("commands ran during %d kills, want at least %d", through, minKillsOfWork)
	}
	clustertest.Must(t, c.AwaitEqual(t.Context()))
}

// killLeaders kills one leader after another while that many commands run, evenly over
// their begins and ends, and restarts each when there is another one. It returns the times
// of the kills.
func killLeaders(t *testing.T, c *cluster.Cluster, commands int) []time.Duration {
	t.Helper()
	file, err := os.OpenFile(ledgerOf(c), os.O_RDONLY|os.O_CREATE, 0o644)
	clustertest.Must(t, err)
	defer func() { _ = file.Close() }() // read only
	var lines lineCounter
	var kills []time.Duration
	n := leaderKills + commands/tasksOfKill
	for i := range n {
		want := 2 * commands * (i + 1) / (n + 2)
		clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("the ledger has %d lines", want), guard, func(context.Context) error {
			if _, err := io.Copy(&lines, file); err != nil {
				return fmt.Errorf("reading the ledger: %w", err)
			}
			if int(lines) < want {
				return fmt.Errorf("it has %d", lines)
			}
			return nil
		}))
		leader := clustertest.Leader(t, c)
		kills = append(kills, now(t))
		clustertest.Must(t, leader.Kill())
		_, err := c.AwaitLeaderOtherThan(t.Context(), leader)
		clustertest.Must(t, err)
		clustertest.Must(t, leader.Start(t.Context()))
		clustertest.Must(t, c.AwaitCaughtUp(t.Context(), leader))
	}
	return kills
}

// A lineCounter counts the lines that are written to it.
type lineCounter int

func (c *lineCounter) Write(text []byte) (int, error) {
	*c += lineCounter(bytes.Count(text, []byte("\n")))
	return len(text), nil
}
