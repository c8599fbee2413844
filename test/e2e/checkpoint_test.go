package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// counting counts to 30, saves each step, and records the count at which each
// attempt starts. The first attempt stays at 20 until it is killed.
const counting = `cd "$DTASK_CHECKPOINT_DIR"
n=$(cat n 2>/dev/null || echo 0)
echo "$DTASK_WORKER $n" >> '%s'
while [ "$n" -lt 30 ]; do
  sleep 0.2
  if [ "$DTASK_ATTEMPT" = 1 ] && [ "$n" = 20 ]; then sleep 1000; fi
  n=$((n + 1)); echo "$n" > n.new && mv n.new n
  echo "::checkpoint"
done
echo "$n"`

func TestACheckpointContinuesOnAnotherWorkerUnderAnotherLeader(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, WorkerFlags: []string{"--checkpoint-interval", "100ms"}})
	starts := filepath.Join(c.Dir, "starts")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("resumable",
		cluster.TaskFile{"id": "count", "run": fmt.Sprintf(counting, starts), "retry": map[string]any{"max": 0}}))
	clustertest.Must(t, cluster.Until(ctx, "a checkpoint is saved", guard, func(ctx context.Context) error {
		a := c.Run(ctx, "status", id, "-o", "json")
		var doc struct {
			Tasks []struct {
				CheckpointAt string `json:"checkpoint_at"`
			} `json:"tasks"`
		}
		if err := a.Err(); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(a.Stdout), &doc); err != nil {
			return err
		}
		if doc.Tasks[0].CheckpointAt == "" {
			return cluster.ErrNotYet
		}
		return nil
	}))
	job, err := c.Job(ctx, id)
	clustertest.Must(t, err)
	first := c.Worker(job.Tasks[0].Worker)
	clustertest.Must(t, first.Kill())
	clustertest.Must(t, clustertest.Leader(t, c).Kill())

	job = completed(t, c.Ctl, id)
	text, err := os.ReadFile(starts)
	clustertest.Must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2 {
		t.Fatalf("want two attempts, got\n%s", text)
	}
	worker, from, _ := strings.Cut(lines[1], " ")
	if n, err := strconv.Atoi(from); err != nil || n == 0 || n >= 30 || worker == first.Name {
		t.Errorf("the second attempt starts with %q, want another worker and a count above 0", lines[1])
	}
	if task := job.Tasks[0]; task.Attempt != 2 || task.Worker == first.Name {
		t.Errorf("got task %+v", task)
	}
	var result struct {
		Results map[string]struct{ Result int }
	}
	a := c.Run(ctx, "result", id, "-o", "json")
	clustertest.Must(t, a.Err())
	clustertest.Must(t, json.Unmarshal([]byte(a.Stdout), &result))
	if got := result.Results["count"].Result; got != 30 {
		t.Errorf("got a count of %d, want 30", got)
	}
}
