package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// benches checks that dtaskctl bench measures jobs of each shape, and leaves no jobs
// behind when it is interrupted.
func benches(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, args := range [][]string{
		{"--tasks", "2000", "--tasks-per-job", "500"},
		{"--tasks", "200", "--shape", "chain", "--tasks-per-job", "50"},
		{"--tasks", "1000", "--shape", "wide", "--width", "50"},
		{"--rate", "2000", "--duration", "500ms"},
	} {
		a := c.Run(t.Context(), append([]string{"bench", "-o", "json"}, args...)...)
		clustertest.Must(t, a.Err())
		var got struct {
			Tasks       int                    `json:"tasks"`
			TasksFailed int                    `json:"tasks_failed"`
			PerSecond   float64                `json:"tasks_per_second"`
			Begin       *struct{ Max float64 } `json:"ready_to_running_ms"`
			Sampled     int                    `json:"tasks_sampled"`
		}
		clustertest.Must(t, a.Into(&got))
		if got.Tasks == 0 || got.TasksFailed > 0 || got.PerSecond <= 0 || got.Begin == nil || got.Sampled == 0 {
			t.Errorf("implausible figures: %s", a)
		}
	}
	interruptedBench(t, c)
}

func interruptedBench(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan cluster.Answer, 1) // one answer
	go func() { ended <- c.Run(ctx, "bench", "--shape", "chain", "--tasks", "100000", "--jobs", "1") }()
	clustertest.Must(t, cluster.Until(t.Context(), "the bench runs", guard, func(ctx context.Context) error {
		return wantBenches(ctx, c, 1)
	}))
	interrupt()
	if a := <-ended; a.Code != 130 {
		t.Errorf("got %s, want exit code 130", a)
	}
	clustertest.Must(t, cluster.Until(t.Context(), "its jobs have ended", guard, func(ctx context.Context) error {
		return wantBenches(ctx, c, 0)
	}))
}

// wantBenches returns an error unless this many jobs of a bench are active.
func wantBenches(ctx context.Context, c *cluster.Cluster, want int) error {
	a := c.Run(ctx, "list", "--name", "bench", "--state", "running", "-o", "json")
	if err := a.Err(); err != nil {
		return err
	}
	var list struct {
		Jobs []cluster.Job `json:"jobs"`
	}
	if err := a.Into(&list); err != nil {
		return err
	}
	if len(list.Jobs) != want {
		return fmt.Errorf("got %d active jobs of a bench, want %d", len(list.Jobs), want)
	}
	return nil
}
