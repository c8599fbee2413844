package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// submitText submits a job file and returns the id of its job.
func submitText(t *testing.T, c *cluster.Cluster, text string, flags ...string) string {
	t.Helper()
	got := c.RunWith(t.Context(), text, append([]string{"submit", "-", "-q"}, flags...)...)
	clustertest.Must(t, got.Err())
	return strings.TrimSpace(got.Stdout)
}

// The example of a job that starts later does so, although its leader is killed meanwhile.
func TestTheExampleOfAJobThatStartsLaterRuns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	text, err := os.ReadFile("../../examples/later.yaml")
	clustertest.Must(t, err)
	const later = 5 * time.Second
	submitted := time.Now()
	id := submitText(t, c, string(text), "--start-after", later.String())
	if got := c.Run(ctx, "list"); !strings.Contains(got.Stdout, "pending (scheduled until ") {
		t.Errorf("list: %s", got)
	}
	if got := c.Run(ctx, "explain", id+"/report"); !strings.Contains(got.Stdout, "its job starts no earlier than") {
		t.Errorf("explain: %s", got)
	}
	leader := clustertest.Leader(t, c)
	clustertest.Must(t, leader.Kill())
	job, err := c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	if took := time.Since(submitted); job.State != "completed" || took < later-100*time.Millisecond { // a wall clock may be corrected meanwhile
		t.Errorf("the job is %s after %v", job.State, took)
	}
	clustertest.Must(t, leader.Start(ctx))
}

// A job replaces the one with its concurrency key, and starts when that has stopped.
func TestTheExampleOfAConcurrencyKeyRuns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	text, err := os.ReadFile("../../examples/deploy.yaml")
	clustertest.Must(t, err)
	first := submitText(t, c, string(text))
	clustertest.Must(t, cluster.Until(ctx, "the first job runs", guard, func(ctx context.Context) error {
		if got := c.Run(ctx, "status", first); !strings.Contains(got.Stdout, "running") {
			return fmt.Errorf("%s", got)
		}
		return nil
	}))
	other := submitText(t, c, string(text), "--set", "branch=other")
	second := submitText(t, c, strings.Replace(string(text), "sleep 20", "sleep 0", 1))
	job, err := c.AwaitEnd(ctx, first, guard)
	clustertest.Must(t, err)
	if job.State != "cancelled" {
		t.Errorf("the replaced job is %s", job.State)
	}
	if job, err = c.AwaitEnd(ctx, second, guard); err != nil || job.State != "completed" {
		t.Errorf("the second job is %s, %v", job.State, err)
	}
	if got := c.Run(ctx, "status", other); !strings.Contains(got.Stdout, "running") {
		t.Errorf("a job with another key: %s", got)
	}
}
