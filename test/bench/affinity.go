package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// affinityKeys, affinityWorkers and affinitySlots are those of the section affinity.
const affinityKeys, affinityWorkers, affinitySlots = 100, 10, 8

// A keyedForm is a kind of job that takes turns with others.
type keyedForm struct {
	what      string
	keys      int
	resources map[string]int64
}

var keyedForms = []keyedForm{
	{what: "without affinity"},
	// Tasks with keys are never prefetched, and neither are those that need a resource.
	{what: "without affinity, never prefetched", resources: map[string]int64{"cpu": 1}},
	{what: fmt.Sprintf("with %d keys", affinityKeys), keys: affinityKeys},
}

// affinities measures the throughput of saturated workers with and without keys, in turns.
func affinities(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{Workers: affinityWorkers, Slots: affinitySlots}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		if err := b.affinity(ctx, cl, b.tasks/25, 100*time.Millisecond); err != nil {
			return err
		}
		return b.affinity(ctx, cl, b.tasks/10, 10*time.Millisecond)
	})
}

// affinity measures jobs of n tasks of one run time.
func (b *bench) affinity(ctx context.Context, cl *client.Client, n int, runTime time.Duration) error {
	rates := make([][]float64, len(keyedForms))
	for round := range b.rounds + 1 {
		for i, f := range keyedForms {
			rate, err := affinityRate(ctx, cl, n, f, runTime)
			if err != nil {
				return err
			}
			if round > 0 { // the first one warms up
				rates[i] = append(rates[i], rate)
			}
		}
	}
	first := fmt.Sprintf("tasks of %s, %s", runTime, keyedForms[0].what)
	b.table.add(first, "tasks/s", fmt.Sprintf("%d tasks in a job; 3 coordinators, %d workers x %d slots", n, affinityWorkers, affinitySlots), rates[0]...)
	for i, f := range keyedForms[1:] {
		b.table.compare("  "+f.what, "tasks/s", "in turns with the rows above", first, rates[i+1]...)
	}
	return nil
}

// affinityRate returns how many tasks a second a job of n tasks has.
func affinityRate(ctx context.Context, cl *client.Client, n int, f keyedForm, runTime time.Duration) (float64, error) {
	job, err := keyed(n, f, runTime)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return 0, fmt.Errorf("submitting the job: %w", err)
	}
	ended, err := cl.Wait(ctx, submitted.ID)
	if err != nil {
		return 0, fmt.Errorf("waiting for the job: %w", err)
	}
	if ended.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		return 0, fmt.Errorf("the job ended as %v, want completed", ended.GetState())
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// keyed is a job of n tasks that sleep, whose keys take turns.
func keyed(n int, f keyedForm, runTime time.Duration) (*dtaskv1.JobSpec, error) {
	one := spec.SingleTask{Type: "sleep", Payload: []byte(runTime.String()), Name: "keyed"}
	job, err := spec.Single(one)
	if err != nil {
		return nil, fmt.Errorf("building job: %w", err)
	}
	policies := job.GetHeader().GetPolicies()
	policies[0].Resources = f.resources
	for k := range f.keys {
		p, ok := proto.Clone(policies[0]).(*dtaskv1.TaskPolicy)
		if ok {
			p.Affinity = fmt.Sprintf("user/%d", k)
			job.Header.Policies = append(job.Header.Policies, p)
		}
	}
	body := job.GetTasks()[0].GetBody()
	job.Tasks = make([]*dtaskv1.TaskSpec, n)
	for i := range job.GetTasks() {
		job.Tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%06d", i), Body: body}
		if f.keys > 0 {
			job.Tasks[i].Policy = uint32(1 + i%f.keys) //nolint:gosec // small
		}
	}
	return job, nil
}
