package main

import (
	"context"
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// alternativeForms are no-op tasks with and without alternatives of their resources. No worker
// has a GPU, and what they need of the CPUs leaves all slots usable.
func alternativeForms() []taskForm {
	cpu, gpu := map[string]int64{"cpu": 1}, map[string]int64{"gpu": 1000, "cpu": 1}
	policy := func(resources map[string]int64, others ...map[string]int64) *dtaskv1.TaskPolicy {
		p := &dtaskv1.TaskPolicy{Resources: resources}
		for _, r := range others {
			p.Alternatives = append(p.Alternatives, &dtaskv1.ResourceList{Resources: r})
		}
		return p
	}
	return []taskForm{
		{what: "without alternatives", policy: policy(cpu)},
		{what: "with two alternatives, the first fits", policy: policy(cpu, gpu)},
		{what: "with two alternatives, the second fits", policy: policy(gpu, cpu)},
	}
}

// alternatives measures the throughput of tasks with resources, with and without alternatives.
func alternatives(ctx context.Context, b *bench) error {
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		n, forms := b.tasks/5, alternativeForms()
		rates, err := b.inTurns(forms, func(f taskForm) (float64, error) {
			return jobRate(ctx, cl, n, f, "noop", strings.Repeat("x", 32))
		})
		if err != nil {
			return err
		}
		b.compareForms("tasks with resources, ", fmt.Sprintf("one job of %d tasks of 32 B, %s", n, b.usual()), forms, rates)
		return nil
	})
}
