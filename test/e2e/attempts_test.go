package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// stages is a program whose first attempt fails, whose second never ends by itself,
// and whose third succeeds.
const stages = `echo . >> '%s'
case $(wc -l < '%[1]s') in
1) echo broken >&2; exit 3;;
2) sleep 1000;;
*) echo fine;;
esac`

func TestAttemptsStayWithACompletedTask(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2})
	begun := filepath.Join(c.Dir, "begun")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("stages", cluster.TaskFile{
		"id": "one", "run": fmt.Sprintf(stages, begun), "retry": map[string]any{"max": 3, "initial": "100ms"},
	}))
	second, err := c.AwaitJob(ctx, id, guard, "the second attempt runs", func(j cluster.Job) bool {
		return j.Tasks[0].Attempt == 2 && j.Tasks[0].State == "running"
	})
	clustertest.Must(t, err)
	clustertest.Must(t, cluster.Until(ctx, "its program has begun", guard, func(context.Context) error {
		if text, err := os.ReadFile(begun); err != nil || strings.Count(string(text), "\n") < 2 {
			return errors.Join(err, cluster.ErrNotYet)
		}
		return nil
	}))
	lost := second.Tasks[0].Worker
	clustertest.Must(t, c.Worker(lost).Kill())
	completed(t, c.Ctl, id)

	var doc struct {
		State   string
		Attempt int
		History []struct {
			Attempt   int
			Worker    string
			StartedAt time.Time `json:"started_at"`
			EndedAt   time.Time `json:"ended_at"`
			Error     string
		}
	}
	a := c.Run(ctx, "status", id+"/one", "-o", "json")
	clustertest.Must(t, a.Err())
	clustertest.Must(t, json.Unmarshal([]byte(a.Stdout), &doc))
	if doc.Attempt != 3 || len(doc.History) != 2 {
		t.Fatalf("got\n%s", a.Stdout)
	}
	failed, gone := doc.History[0], doc.History[1]
	if failed.Attempt != 1 || !strings.Contains(failed.Error, "exit code 3") || !strings.Contains(failed.Error, "broken") {
		t.Errorf("the attempt that failed: got %+v", failed)
	}
	if gone.Attempt != 2 || gone.Worker != lost || gone.Error == "" || !gone.StartedAt.After(failed.StartedAt) || !gone.EndedAt.After(gone.StartedAt) {
		t.Errorf("the attempt that was lost: got %+v", gone)
	}
	a = c.Run(ctx, "result", id+"/one")
	if clustertest.Must(t, a.Err()); a.Stdout != "fine\n" {
		t.Errorf("got result %q", a.Stdout)
	}
}

func TestARunningTaskKeepsItsStartWhenAllCoordinatorsRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	end := filepath.Join(c.Dir, "end")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("long", cluster.TaskFile{"id": "one", "run": fmt.Sprintf("until [ -e '%s' ]; do sleep 0.1; done", end)}))
	running := func(j cluster.Job) bool { return j.Tasks[0].State == "running" && j.Tasks[0].StartedAt != nil }
	before, err := c.AwaitJob(ctx, id, guard, "the task runs", running)
	clustertest.Must(t, err)
	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	// The next leader must not take its first report of the attempt for its start.
	clustertest.Must(t, cluster.Until(ctx, "the task has run for two seconds", guard, func(context.Context) error {
		if time.Since(*before.Tasks[0].StartedAt) < 2*time.Second {
			return cluster.ErrNotYet
		}
		return nil
	}))
	clustertest.Must(t, c.Start(ctx))
	after, err := c.AwaitJob(ctx, id, guard, "the task is seen to run again", running)
	clustertest.Must(t, err)
	if moved := after.Tasks[0].StartedAt.Sub(*before.Tasks[0].StartedAt).Abs(); moved > time.Second || after.Tasks[0].Attempt != 1 {
		t.Errorf("started at %v and then at %v, attempt %d", before.Tasks[0].StartedAt, after.Tasks[0].StartedAt, after.Tasks[0].Attempt)
	}
	clustertest.Must(t, os.WriteFile(end, nil, 0o600))
	completed(t, c.Ctl, id)
}
