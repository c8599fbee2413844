package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// failoverLimit is a guard against hanging.
const failoverLimit = 2 * time.Minute

// failover kills leaders while short tasks end all the time, and measures for
// how long none does.
func failover(ctx context.Context, o options, t *table) error {
	var longest, back []float64
	executed := 0
	err := with(ctx, cluster.Config{Workers: o.workers, Slots: 16}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		for range o.kills {
			gap, retries, err := oneKill(ctx, c, cl)
			if err != nil {
				return err
			}
			longest = append(longest, float64(gap.Longest.Milliseconds()))
			back = append(back, float64(gap.Back.Milliseconds()))
			executed += retries
		}
		return nil
	})
	if err != nil {
		return err
	}
	setting := fmt.Sprintf("%d x SIGKILL of the leader, tasks of 10 ms on %d slots", o.kills, 16*o.workers)
	t.add("leader killed: longest time without a completion", "ms", setting, longest...)
	t.add("leader killed: until work flows again", "ms", setting, back...)
	t.add("leader killed: attempts beyond the first", "", "assigned and not yet sent when it died", float64(executed))
	return nil
}

func oneKill(ctx context.Context, c *cluster.Cluster, cl *client.Client) (cluster.Gap, int, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	job, err := spec.Single(spec.SingleTask{Type: "sleep", Payload: []byte("10ms"), Name: "failover"})
	if err != nil {
		return cluster.Gap{}, 0, fmt.Errorf("making a job: %w", err)
	}
	body := job.GetTasks()[0].GetBody()
	job.Tasks = nil
	const tasks = 6000
	for i := range tasks {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", i), Body: body})
	}
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return cluster.Gap{}, 0, err
	}
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return cluster.Gap{}, 0, fmt.Errorf("submitting: %w", err)
	}
	observer := c.Observe(ctx, submitted.ID)
	defer observer.Stop()
	if _, err := observer.Await(ctx, tasks/4); err != nil {
		return cluster.Gap{}, 0, err
	}
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		return cluster.Gap{}, 0, err
	}
	if _, err := observer.Await(ctx, tasks); err != nil {
		return cluster.Gap{}, 0, err
	}
	observer.Stop()
	gap, found := cluster.GapAround(observer.Seen(), killed)
	if !found {
		return gap, 0, fmt.Errorf("no completion was seen after the kill")
	}
	ended, err := cl.Wait(ctx, submitted.ID)
	if err != nil {
		return gap, 0, fmt.Errorf("waiting for the job: %w", err)
	}
	if ended.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		return gap, 0, fmt.Errorf("the job is %s", ended.GetState())
	}
	if err := leader.Start(ctx); err != nil {
		return gap, 0, err
	}
	return gap, int(ended.GetRetries()), c.AwaitCaughtUp(ctx, leader) //nolint:gosec // few
}
