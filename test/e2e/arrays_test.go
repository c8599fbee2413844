package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// maxConcurrent returns the largest number of runs of an array that were active at
// the same time.
func maxConcurrent(runs []ledger.Run) int {
	most := 0
	for _, at := range runs {
		n := 0
		for _, r := range runs {
			if r.Start <= at.Start && (r.End == 0 || r.End > at.Start) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestEachItemOfAnArrayCompletesOnceAlthoughTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 8})
	const items, limit = 300, 5
	bad := map[int]bool{3: true, 150: true, 299: true}
	list := make([]int, items)
	for i := range list {
		if bad[i] {
			list[i] = 7
		}
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFileWith(map[string]any{"name": "array", "max_failures": len(bad)},
		c.Programs.Mark("map", ledgerOf(c), 10*time.Millisecond, "-exit", "${{ item }}").
			With("array", map[string]any{"items": list, "max_parallel": limit}).
			With("retry", map[string]any{"max": 1, "initial": "50ms"})))

	half := func(job cluster.Job) bool { return job.TasksCompleted >= items/2 }
	_, err := c.AwaitJob(ctx, id, guard, "half of the items are done", half)
	clustertest.Must(t, err)
	clustertest.Must(t, clustertest.Leader(t, c).Kill())
	job := completed(t, c.Ctl, id)
	if job.TasksCompleted != items-len(bad) || job.TasksFailed != len(bad) {
		t.Errorf("got %d items completed and %d failed, want %d and %d", job.TasksCompleted, job.TasksFailed, items-len(bad), len(bad))
	}

	var runs []ledger.Run
	ends := map[string][]int{} // item → exit codes
	for _, r := range ledger.Runs(readLedger(t, c)) {
		if r.Job == id {
			runs = append(runs, r)
			ends[r.Task] = append(ends[r.Task], r.Exit)
		}
	}
	for i := range items {
		name, want := fmt.Sprintf("map[%d]", i), "[0]"
		if bad[i] {
			want = "[7 7]"
		}
		if got := fmt.Sprint(ends[name]); got != want {
			t.Errorf("%s: got exit codes %s, want %s", name, got, want)
		}
	}
	if most := maxConcurrent(runs); most > limit {
		t.Errorf("got %d concurrent items, want at most %d", most, limit)
	}
	letters := c.Run(ctx, "dlq", "list")
	clustertest.Must(t, letters.Err())
	for i := range bad {
		if !strings.Contains(letters.Stdout, fmt.Sprintf("map[%d]", i)) {
			t.Errorf("map[%d] is missing among the dead letters:\n%s", i, letters.Stdout)
		}
	}
}
