package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/spec"
)

// awaitTotals returns the totals of the cluster as soon as a replica serves them.
func awaitTotals(t *testing.T, url string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		totals := make(map[string]string)
		for line := range strings.Lines(scrape(t, url)) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, "dtask_cluster_") && strings.HasSuffix(name, "_total") {
				totals[name] = value
			}
		}
		if len(totals) > 0 {
			return totals
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no totals are served")
		}
	}
}

// The first totals after a restart are those from before it: less would be a reset for
// Prometheus.
func TestTotalsOfTheClusterContinueAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, url, stop := runWithMetrics(t, dir)
	awaitLevel(t, c, fsm.MaxLevel)
	const jobs = 30
	for range jobs {
		job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "job"})
		if err != nil {
			t.Fatal(err)
		}
		submitted, err := c.Submit(t.Context(), job, client.SubmitOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Cancel(t.Context(), submitted.ID, "", "not needed"); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"dtask_cluster_tasks_completed_total": "0", "dtask_cluster_tasks_failed_total": "0", "dtask_cluster_tasks_cancelled_total": "30",
		"dtask_cluster_jobs_completed_total": "0", "dtask_cluster_jobs_failed_total": "0", "dtask_cluster_jobs_cancelled_total": "30",
	}
	check := func(when string) {
		t.Helper()
		got := awaitTotals(t, url)
		for name, value := range want {
			if got[name] != value || len(got) != len(want) {
				t.Errorf("%s: got %v, want %v", when, got, want)
				break
			}
		}
	}
	check("before")
	stop()
	_, url, stop = runWithMetrics(t, dir)
	defer stop()
	check("after a restart")
}
