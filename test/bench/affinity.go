package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// affinityKeys, affinityWorkers and affinitySlots are those of the section affinity.
const affinityKeys, affinityWorkers, affinitySlots = 100, 10, 8

// affinityWindow is how long a saturated cluster is measured. The job has enough tasks that each
// worker has some of its keys until the end of the window: it is that of windowPart of the tasks,
// after warmPart.
const (
	affinityWindow       = 1500 * time.Millisecond
	warmPart, windowPart = 0.1, 0.3
)

const (
	withoutKeys     = "without affinity"
	neverPrefetched = "without affinity, never prefetched"
)

// keyedForms are kinds of jobs that take turns. Tasks that need a resource are never prefetched.
func keyedForms() []taskForm {
	return []taskForm{
		{what: withoutKeys},
		{what: fmt.Sprintf("with %d keys", affinityKeys), target: "at least 0.97 x", keys: affinityKeys},
		{what: neverPrefetched, policy: &dtaskv1.TaskPolicy{Resources: map[string]int64{"cpu": 1}}},
	}
}

// affinities measures the throughput with and without keys, in turns: of saturated workers, and of
// whole jobs, at the end of which some workers have run all tasks of their keys.
func affinities(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{Workers: affinityWorkers, Slots: affinitySlots}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		forms := keyedForms()
		if err := b.saturated(ctx, cl, forms, 10*time.Millisecond); err != nil {
			return err
		}
		if err := b.saturated(ctx, cl, forms[:2], 100*time.Millisecond); err != nil {
			return err
		}
		return b.wholeJobs(ctx, cl, forms[:2], 10*time.Millisecond)
	})
}

// saturated measures while all workers have tasks of their keys.
func (b *bench) saturated(ctx context.Context, cl *client.Client, forms []taskForm, runTime time.Duration) error {
	n := int(affinityWorkers * affinitySlots * affinityWindow.Seconds() / runTime.Seconds() / windowPart)
	home := make(map[string][]float64)
	rates, err := b.inTurns(forms, func(f taskForm) (float64, error) {
		rate, part, err := affinityRate(ctx, cl, n, f, runTime)
		home[f.what] = append(home[f.what], part)
		return rate, err
	})
	if err != nil {
		return err
	}
	first := fmt.Sprintf("tasks of %s, saturated, ", runTime)
	setting := fmt.Sprintf("%d of %d tasks; 3 coordinators, %d workers x %d slots", int(float64(n)*windowPart), n, affinityWorkers, affinitySlots)
	b.compareForms(first, setting, forms, rates)
	for _, f := range forms {
		if f.keys > 0 {
			b.table.add(fmt.Sprintf("  tasks of %s on the worker of their key", runTime), "%", "that on which most of its tasks ran", home[f.what][1:]...)
		}
	}
	return nil
}

// affinityRate returns how many tasks a second end in the window, and how many percent of them ran
// where most tasks of their key did. The job is cancelled then.
func affinityRate(ctx context.Context, cl *client.Client, n int, f taskForm, runTime time.Duration) (rate, home float64, err error) {
	job, err := f.job(n, "sleep", runTime.String())
	if err != nil {
		return 0, 0, err
	}
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("submitting the job: %w", err)
	}
	var began time.Time
	before := uint32(0)
	for shown, err := range cl.WatchSubmitted(ctx, submitted) {
		if err != nil {
			return 0, 0, fmt.Errorf("watching the job: %w", err)
		}
		ended := shown.GetTasksCompleted()
		if shown.GetTasksFailed() > 0 {
			return 0, 0, fmt.Errorf("%d tasks failed", shown.GetTasksFailed())
		}
		if began.IsZero() && float64(ended) >= warmPart*float64(n) {
			began, before = time.Now(), ended
		}
		if float64(ended) >= (warmPart+windowPart)*float64(n) {
			rate = float64(ended-before) / time.Since(began).Seconds()
			break
		}
	}
	if _, err := cl.CancelNow(ctx, submitted.ID, "measured"); err != nil {
		return 0, 0, fmt.Errorf("cancelling the job: %w", err)
	}
	if _, err := cl.Wait(ctx, submitted.ID); err != nil {
		return 0, 0, fmt.Errorf("waiting for the job: %w", err)
	}
	home, err = atHome(ctx, cl, submitted.ID, f.keys)
	return rate, home, err
}

// atHome returns how many percent of the tasks of a job ran where most tasks of their key did.
func atHome(ctx context.Context, cl *client.Client, job string, keys int) (float64, error) {
	if keys == 0 {
		return 0, nil
	}
	ran := make([]map[string]int, keys)
	all, home := 0, 0
	for t, err := range cl.Tasks(ctx, job, client.TaskFilter{States: []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_COMPLETED}}) {
		if err != nil {
			return 0, fmt.Errorf("listing tasks: %w", err)
		}
		k := int(t.GetIndex()) % keys
		if ran[k] == nil {
			ran[k] = make(map[string]int)
		}
		ran[k][t.GetWorker()]++
		all++
	}
	for _, workers := range ran {
		most := 0
		for _, n := range workers {
			most = max(most, n)
		}
		home += most
	}
	return 100 * float64(home) / float64(max(all, 1)), nil
}

// wholeJobs measures jobs until their end.
func (b *bench) wholeJobs(ctx context.Context, cl *client.Client, forms []taskForm, runTime time.Duration) error {
	n := int(affinityWorkers * affinitySlots * affinityWindow.Seconds() / runTime.Seconds())
	rates, err := b.inTurns(forms, func(f taskForm) (float64, error) {
		return jobRate(ctx, cl, n, f, "sleep", runTime.String())
	})
	if err != nil {
		return err
	}
	first := fmt.Sprintf("whole job with tasks of %s, ", runTime)
	b.compareForms(first, fmt.Sprintf("%d tasks, from the submission to the end", n), forms, rates)
	return nil
}

// withKey returns a policy with a key.
func withKey(p *dtaskv1.TaskPolicy, key string) *dtaskv1.TaskPolicy {
	x, ok := proto.Clone(p).(*dtaskv1.TaskPolicy)
	if ok {
		x.Affinity = key
	}
	return x
}
