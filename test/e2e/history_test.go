package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Jobs end and leave memory immediately. After the leader is killed and a replica
// loses its data directory, every replica lists all jobs with their results.
func TestHistoryOutlivesLeadersAndDataDirectories(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: append(snapshotFlags(), "--auto-rejoin", "--keep-for", "100ms")})
	var ids []string
	submit := func(n int) {
		t.Helper()
		for range n {
			id, err := c.Submit(ctx, cluster.JobFile(fmt.Sprintf("job-%d", len(ids)%3), cluster.Builtin("a", "echo", fmt.Sprint("of ", len(ids)))))
			clustertest.Must(t, err)
			_, err = c.AwaitEnd(ctx, id, guard)
			clustertest.Must(t, err)
			ids = append(ids, id)
		}
	}
	whole := func(what string) {
		t.Helper()
		for _, n := range c.Coordinators() {
			clustertest.Must(t, cluster.Until(ctx, fmt.Sprintf("%s has all %d jobs %s", n.Name, len(ids), what), guard,
				func(ctx context.Context) error { return hasAll(ctx, n, ids) }))
		}
	}
	submit(10)
	whole("in its history")

	leader := clustertest.Leader(t, c)
	clustertest.Must(t, leader.Kill())
	_, err := c.AwaitLeaderOtherThan(ctx, leader)
	clustertest.Must(t, err)
	submit(10)
	clustertest.Must(t, leader.Start(ctx))
	whole("after the leader was killed")

	wiped := c.Followers(clustertest.Leader(t, c))[0]
	clustertest.Must(t, wiped.Kill())
	clustertest.Must(t, os.RemoveAll(wiped.DataDir))
	clustertest.Must(t, wiped.Start(ctx))
	submit(5)
	whole("after a replica lost its directory")
	clustertest.Must(t, c.AwaitEqual(ctx))
}

// hasAll checks that a replica holds no job in memory, has a complete history, and
// lists and shows all jobs.
func hasAll(ctx context.Context, n *cluster.Coordinator, ids []string) error {
	text, err := metricsOf(ctx, n)
	if err != nil {
		return err
	}
	for _, line := range []string{fmt.Sprintf("dtask_history_jobs %d", len(ids)), "dtask_history_incomplete 0"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			return fmt.Errorf("%w: not %q", cluster.ErrNotYet, line)
		}
	}
	conn, err := n.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	jobs := dtaskv1.NewJobServiceClient(conn)
	stale := dtaskv1.Consistency_CONSISTENCY_STALE
	listed := make(map[string]string)
	for token := ""; ; {
		page, err := jobs.ListJobs(ctx, &dtaskv1.ListJobsRequest{Limit: 7, PageToken: token, Consistency: stale})
		if err != nil {
			return err
		}
		for _, j := range page.GetJobs() {
			if listed[j.GetId()] != "" {
				return fmt.Errorf("duplicate job %s", j.GetId())
			}
			listed[j.GetId()] = j.GetName()
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(listed) != len(ids) {
		return fmt.Errorf("got %d jobs", len(listed))
	}
	for i, id := range ids {
		if want := fmt.Sprintf("job-%d", i%3); listed[id] != want {
			return fmt.Errorf("job %s: got %q, want %q", id, listed[id], want)
		}
		result, err := jobs.GetResult(ctx, &dtaskv1.GetResultRequest{Job: id, Consistency: stale})
		if err != nil {
			return err
		}
		if got := result.GetResults(); len(got) != 1 || string(got[0].GetResult()) != fmt.Sprint("of ", i) {
			return fmt.Errorf("result of job %s: got %v", id, got)
		}
	}
	return nil
}

func metricsOf(ctx context.Context, n *cluster.Coordinator) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	return string(text), errors.Join(err, resp.Body.Close())
}
