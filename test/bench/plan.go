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

// plans measures plans of 100,000 tasks with two dependencies each.
func plans(ctx context.Context, b *bench) error {
	n := b.million / 10
	var took []float64
	err := with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		plan, err := b.planner(cl)
		if err != nil {
			return err
		}
		for range b.rounds {
			began := time.Now()
			p, err := plan(ctx)
			if err != nil {
				return err
			}
			took = append(took, float64(time.Since(began).Microseconds())/1000)
			if !p.GetMakespan().GetBounded() {
				return fmt.Errorf("planning: got no makespan: %v", p.GetClasses())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.table.add("plan of a job", "ms", fmt.Sprintf("%d tasks, 1,000 wide, two dependencies each, without earlier runs, %s; target: at most 1,000 ms for 100,000 tasks", n, b.usual()), took...)
	return nil
}

// planner returns a function that plans a job of 100,000 tasks.
func (b *bench) planner(cl *client.Client) (func(context.Context) (*dtaskv1.PlanResponse, error), error) {
	job, err := listed("planned", b.million/10)
	if err != nil {
		return nil, err
	}
	job.GetHeader().GetPolicies()[0].ExpectMs = 1000
	outline, err := spec.OutlineOf(job)
	if err != nil {
		return nil, fmt.Errorf("summarizing job: %w", err)
	}
	return func(ctx context.Context) (*dtaskv1.PlanResponse, error) {
		return cl.Plan(ctx, job.GetHeader(), outline.Tasks, client.ReadOptions{}) //nolint:wrapcheck // says what it did
	}, nil
}
