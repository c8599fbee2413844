package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// majorityTasks is how many tasks a job has whose cluster loses its majority.
const majorityTasks = 100_000

// lostSuffix ends the names of the directories of lost coordinators.
const lostSuffix = ".lost"

// A majorityLoss has what a job lost with the majority.
type majorityLoss struct {
	kept  float64 // tasks that were completed after the recovery, before new workers came
	ended float64 // at-most-once tasks that ended as lost
	again float64 // other tasks that started more than once
}

// recovery measures the way from a lost majority to a cluster of three: one coordinator is
// left, in the middle of a job, and a new cluster is made of its directory. Half of the tasks
// are at-most-once. It fails if one of them starts twice, if a task is missing or completes
// twice, and if a lost coordinator is not refused when it comes back.
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
	b.table.add("lost majority: at-most-once tasks that ended as lost", "", "all that were not completed: each may have started", values(losses, func(l majorityLoss) float64 { return l.ended })...)
	b.table.add("lost majority: other tasks started again", "", "those that ran, and those whose end only the lost coordinators had", values(losses, func(l majorityLoss) float64 { return l.again })...)
	return nil
}

// loseMajority loses two of three coordinators in the middle of a job, and lets it complete
// in a new cluster.
func (b *bench) loseMajority(ctx context.Context, c *cluster.Cluster, tasks int) (r rebuilding, l majorityLoss, err error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	ledger := newRecoveryLedger(tasks)
	stop, err := b.ownWorkers(ctx, c, &ledger.begins)
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
	if r, err = recovered(ctx, c, id); err != nil {
		return r, l, err
	}
	if err := ledger.recovered(ctx, c, id); err != nil {
		return r, l, err
	}
	l.kept = float64(len(ledger.kept))
	if stop, err = b.ownWorkers(ctx, c, &ledger.begins); err != nil {
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
	l.ended, l.again, err = ledger.check(ctx, cl, id)
	return r, l, err
}

// recovered makes a cluster of three of the first coordinator's directory. The time in which
// the lost ones come back does not count.
func recovered(ctx context.Context, c *cluster.Cluster, id string) (r rebuilding, err error) {
	first := c.Coordinator("n1")
	began := time.Now()
	if r.command, err = offline(ctx, c, "recover", "--data-dir", first.DataDir, "--lost", "n2,n3", "--yes"); err != nil {
		return r, err
	}
	if err := first.Start(ctx); err != nil {
		return r, err //nolint:wrapcheck // says what it did
	}
	if r.answered, err = answersAfter(ctx, c, id, began); err != nil {
		return r, err
	}
	paused := time.Now()
	if err := comeBack(ctx, c); err != nil {
		return r, err
	}
	r.voters, err = grown(ctx, c, began.Add(time.Since(paused)))
	return r, err
}

// comeBack starts both lost coordinators with their old directories, which are a majority of
// the old cluster. Each must exit because it belongs to that one.
func comeBack(ctx context.Context, c *cluster.Cluster) error {
	others := c.Coordinators()[1:]
	for _, n := range others {
		if err := os.Rename(n.DataDir+lostSuffix, n.DataDir); err != nil {
			return fmt.Errorf("putting a directory back: %w", err)
		}
		if err := n.Start(ctx); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	for _, n := range others {
		code, err := n.Wait(ctx)
		if err != nil {
			return fmt.Errorf("%s came back with its old directory, and is not refused: %w", n.Name, err)
		}
		if code == 0 || !n.LogHas("belongs to cluster") {
			return fmt.Errorf("%s came back with its old directory, and ended with code %d for another reason", n.Name, code)
		}
		if err := os.RemoveAll(n.DataDir); err != nil {
			return fmt.Errorf("emptying a directory: %w", err)
		}
	}
	return nil
}

// quarterDone submits a job, and returns when a quarter of it has completed.
func quarterDone(ctx context.Context, c *cluster.Cluster, tasks int) (id string, err error) {
	job, err := halfAtMostOnce(tasks)
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

// losing kills all coordinators, the first one last, and takes the directories of the others
// away: without them nothing is committed any more.
func losing(c *cluster.Cluster) error {
	others := c.Coordinators()[1:]
	var errs []error
	for _, n := range others {
		errs = append(errs, n.Kill())
	}
	errs = append(errs, c.Coordinator("n1").Kill())
	for _, n := range others {
		errs = append(errs, os.Rename(n.DataDir, n.DataDir+lostSuffix))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("losing two coordinators: %w", err)
	}
	return nil
}
