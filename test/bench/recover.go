package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// majorityTasks is how many tasks a job has whose cluster loses its majority.
const majorityTasks = 100_000

// A majorityLoss has what a job lost with the majority.
type majorityLoss struct {
	kept    float64 // tasks that were completed after the recovery, before new workers came
	missing float64 // tasks that never started
	again   float64 // tasks that started more than once
}

// recovery measures the way from a lost majority to a cluster of three: one coordinator is
// left, in the middle of a job, and a new cluster is made of its directory.
func recovery(ctx context.Context, b *bench) error {
	tasks := min(majorityTasks, b.tasks)
	var all []rebuilding
	var losses []majorityLoss
	for range b.rounds {
		err := with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
			r, l, err := b.loseMajority(ctx, c, tasks)
			all, losses = append(all, r), append(losses, l)
			return err
		})
		if err != nil {
			return err
		}
	}
	setting := fmt.Sprintf("two of three coordinators lost after a quarter of %d tasks", tasks)
	b.rebuilt("lost majority", "dtaskd recover", setting, all)
	b.table.add("lost majority: tasks completed before", "", "of those that the recovered directory has", values(losses, func(l majorityLoss) float64 { return l.kept })...)
	b.table.add("lost majority: tasks missing", "", "the job completes with new workers", values(losses, func(l majorityLoss) float64 { return l.missing })...)
	b.table.add("lost majority: tasks started again", "", "those that ran, and those whose end only the lost coordinators had", values(losses, func(l majorityLoss) float64 { return l.again })...)
	return nil
}

// loseMajority loses two of three coordinators in the middle of a job, and lets it complete
// in a new cluster.
func (b *bench) loseMajority(ctx context.Context, c *cluster.Cluster, tasks int) (r rebuilding, l majorityLoss, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	begins := new(begins)
	begins.reset(tasks)
	stop, err := b.ownWorkers(ctx, c, begins)
	if err != nil {
		return r, l, err
	}
	id, err := quarterDone(ctx, c, tasks)
	if err == nil {
		err = losing(c)
	}
	stop()
	if err != nil {
		return r, l, err
	}
	first := c.Coordinator("n1")
	began := time.Now()
	if r.command, err = offline(ctx, c, "recover", "--data-dir", first.DataDir, "--lost", "n2,n3", "--yes"); err != nil {
		return r, l, err
	}
	if err := first.Start(ctx); err != nil {
		return r, l, err //nolint:wrapcheck // says what it did
	}
	var job *dtaskv1.Job
	if job, r.answered, err = answersAfter(ctx, c, id, began); err != nil {
		return r, l, err
	}
	l.kept = float64(job.GetTasksCompleted())
	if r.voters, err = grown(ctx, c, began); err != nil {
		return r, l, err
	}
	if stop, err = b.ownWorkers(ctx, c, begins); err != nil {
		return r, l, err
	}
	defer stop()
	cl, err := c.Client()
	if err != nil {
		return r, l, err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = cl.Close() }() // nothing is written
	if err := completes(ctx, cl, id); err != nil {
		return r, l, err
	}
	l.missing, l.again = begins.count()
	return r, l, nil
}

// quarterDone submits a job, and returns when a quarter of it has completed.
func quarterDone(ctx context.Context, c *cluster.Cluster, tasks int) (id string, err error) {
	job, err := pending("majority", tasks, nil)
	if err != nil {
		return "", err
	}
	cl, err := c.Client()
	if err != nil {
		return "", err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = cl.Close() }() // nothing is written
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return "", fmt.Errorf("submitting: %w", err)
	}
	observer := c.Observe(ctx, submitted.ID)
	defer observer.Stop()
	_, err = observer.Await(ctx, tasks/4)
	return submitted.ID, err //nolint:wrapcheck // says what it did
}

// losing kills all coordinators, the first one last, and removes the directories of the
// others: without them nothing is committed any more.
func losing(c *cluster.Cluster) error {
	others := c.Coordinators()[1:]
	var errs []error
	for _, n := range others {
		errs = append(errs, n.Kill())
	}
	errs = append(errs, c.Coordinator("n1").Kill())
	for _, n := range others {
		errs = append(errs, os.RemoveAll(n.DataDir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("losing two coordinators: %w", err)
	}
	return nil
}
