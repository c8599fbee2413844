package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// plans measures plans of 100,000 tasks with two dependencies each.
func plans(ctx context.Context, b *bench) error {
	n := b.million / 10
	job, err := listed("planned", n)
	if err != nil {
		return err
	}
	job.GetHeader().GetPolicies()[0].ExpectMs = 1000
	outline, err := spec.OutlineOf(job)
	if err != nil {
		return fmt.Errorf("summarizing job: %w", err)
	}
	var took []float64
	err = with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		for range b.rounds {
			began := time.Now()
			p, err := cl.Plan(ctx, job.GetHeader(), outline.Tasks, client.ReadOptions{})
			if err != nil {
				return fmt.Errorf("planning: %w", err)
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
	b.table.add("plan of a job", "ms", fmt.Sprintf("%d tasks, 1,000 wide, two dependencies each, without earlier runs, %s", n, b.usual()), took...)
	return nil
}
