package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// plans measures plans of 100,000 tasks with two dependencies each.
func plans(ctx context.Context, b *bench) error {
	header, tasks, err := b.planned()
	if err != nil {
		return err
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
			p, err := cl.Plan(ctx, header, tasks, client.ReadOptions{})
			if err != nil {
				return err //nolint:wrapcheck // says what it did
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
	b.table.add("plan of a job", "ms", fmt.Sprintf("%d tasks, 1,000 wide, two dependencies each, without earlier runs, %s; target: at most 1,000 ms for 100,000 tasks", len(tasks), b.usual()), took...)
	return nil
}

// planned is a job of 100,000 tasks, as plans have it.
func (b *bench) planned() (*dtaskv1.JobHeader, []*dtaskv1.PlanTask, error) {
	job, err := listed("planned", b.million/10)
	if err != nil {
		return nil, nil, err
	}
	job.GetHeader().GetPolicies()[0].ExpectMs = 1000
	outline, err := spec.OutlineOf(job)
	if err != nil {
		return nil, nil, fmt.Errorf("summarizing job: %w", err)
	}
	return job.GetHeader(), outline.Tasks, nil
}

// planner returns a function that has one coordinator plan that job.
func (b *bench) planner(conn *grpc.ClientConn) (func(context.Context) error, error) {
	header, tasks, err := b.planned()
	if err != nil {
		return nil, err
	}
	request, err := proto.Marshal(&dtaskv1.PlanRequest{Header: header, Tasks: tasks})
	if err != nil {
		return nil, fmt.Errorf("encoding a plan: %w", err)
	}
	return func(ctx context.Context) error {
		var response []byte
		if err := conn.Invoke(ctx, dtaskv1.JobService_Plan_FullMethodName, &request, &response, grpc.ForceCodecV2(encoded{})); err != nil {
			return fmt.Errorf("planning: %w", err)
		}
		return nil
	}, nil
}
