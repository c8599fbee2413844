package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

const (
	// archiveLimit is a guard against hanging while jobs are moved to the history.
	archiveLimit = 10 * time.Minute
	// archiveBatch is how many jobs for the history are submitted in a call.
	archiveBatch = 1000
	// joinRetry is the time between two attempts to add a coordinator that has just started.
	joinRetry = 50 * time.Millisecond
)

// restore measures the way from a backup with many pending tasks and finished jobs to a
// cluster: the command, the first answer, and three voters.
func restore(ctx context.Context, b *bench) error {
	cfg := b.usualCluster()
	cfg.CoordinatorFlags = []string{"--keep-for", "100ms"}
	return with(ctx, cfg, func(c *cluster.Cluster) error {
		archived, err := b.archive(ctx, c)
		if err != nil {
			return err
		}
		for _, w := range c.Workers() { // of the cluster that is backed up
			if err := w.Kill(); err != nil {
				return err //nolint:wrapcheck // says what it did
			}
		}
		waiting, err := b.fill(ctx, c)
		if err != nil {
			return err
		}
		s := saves{path: filepath.Join(c.Dir, "cluster.dtbk")}
		if err := s.one(ctx, c, "--with-history"); err != nil {
			return err
		}
		setting := fmt.Sprintf("%d pending tasks, %d jobs in the history", b.pending, b.pending)
		b.table.add("backup with history: saved after", "s", setting, s.saved...)
		if err := b.checks(ctx, c, s.path); err != nil {
			return err
		}
		var all []rebuilding
		for range b.rounds {
			r, err := restored(ctx, c, s.path, waiting, archived)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		b.rebuilt("restore", "dtaskd restore", setting, all)
		return nil
	})
}

// archive lets jobs of one task finish and waits until all coordinators have them in their
// history. It returns one of them.
func (b *bench) archive(ctx context.Context, c *cluster.Cluster) (job string, err error) {
	answer := c.Run(ctx, "bench", "-o", "json", "--sample", "0", "--tasks", strconv.Itoa(b.pending),
		"--tasks-per-job", "1", "--batch", strconv.Itoa(archiveBatch))
	if err := answer.Err(); err != nil {
		return "", err //nolint:wrapcheck // says what it did
	}
	if err := cluster.Until(ctx, "all jobs are in the history", archiveLimit, noneFinished(c)); err != nil {
		return "", err //nolint:wrapcheck // says what it did
	}
	var list struct {
		Jobs []cluster.Job `json:"jobs"`
	}
	if err := c.Run(ctx, "list", "--limit", "1", "-o", "json").Into(&list); err != nil {
		return "", err //nolint:wrapcheck // says what it did
	}
	if len(list.Jobs) == 0 {
		return "", errors.New("the history has no job")
	}
	return list.Jobs[0].ID, nil
}

// A rebuilding is what it took to make a cluster of a file or a directory, in seconds from
// the start of the command.
type rebuilding struct {
	command  float64 // the command alone
	answered float64 // until the first coordinator has answered a read of a job
	history  float64 // until it has answered that of a job in the history; 0 = not asked
	voters   float64 // until three coordinators have a vote
}

// rebuilt adds the rows of several.
func (b *bench) rebuilt(what, command, setting string, all []rebuilding) {
	b.table.add(what+": the command takes", "s", command+"; "+setting, values(all, func(r rebuilding) float64 { return r.command })...)
	b.table.add(what+": first job answered after", "s", "from the start of the command, with the start of dtaskd", values(all, func(r rebuilding) float64 { return r.answered })...)
	if all[0].history > 0 {
		b.table.add(what+": job of the history answered after", "s", "", values(all, func(r rebuilding) float64 { return r.history })...)
	}
	b.table.add(what+": three voters after", "s", "two empty coordinators started and added, both at once", values(all, func(r rebuilding) float64 { return r.voters })...)
}

// restored makes a cluster of a backup.
func restored(ctx context.Context, c *cluster.Cluster, path, waiting, archived string) (r rebuilding, err error) {
	for _, n := range c.Coordinators() {
		if err := errors.Join(n.Kill(), os.RemoveAll(n.DataDir)); err != nil {
			return r, fmt.Errorf("ending the old cluster: %w", err)
		}
	}
	first := c.Coordinator("n1")
	began := time.Now()
	if r.command, err = offline(ctx, c, "restore", path, "--data-dir", first.DataDir, "--id", first.Name, "--address", first.Addr); err != nil {
		return r, err
	}
	if err := first.Start(ctx); err != nil {
		return r, err //nolint:wrapcheck // says what it did
	}
	if r.answered, err = answersAfter(ctx, c, waiting, began); err != nil {
		return r, err
	}
	if r.history, err = answersAfter(ctx, c, archived, began); err != nil {
		return r, err
	}
	r.voters, err = grown(ctx, c, began)
	return r, err
}

// answersAfter reads a job from the first coordinator until it is answered, and returns the
// seconds since began.
func answersAfter(ctx context.Context, c *cluster.Cluster, id string, began time.Time) (float64, error) {
	cl, err := c.Client(c.Coordinator("n1")) // a new one: the former cluster had another ID
	if err != nil {
		return 0, err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = cl.Close() }() // nothing is written
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	if _, err := cl.Job(ctx, id, client.ReadOptions{}); err != nil {
		return 0, fmt.Errorf("reading job %s: %w", id, err)
	}
	return time.Since(began).Seconds(), nil
}

// grown adds two empty coordinators to the first one, and returns the seconds since began
// once all have a vote.
func grown(ctx context.Context, c *cluster.Cluster, began time.Time) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	first, others := c.Coordinator("n1"), c.Coordinators()[1:]
	for _, n := range others {
		if err := n.Start(ctx); err != nil {
			return 0, err //nolint:wrapcheck // says what it did
		}
	}
	var adding errgroup.Group
	for _, n := range others {
		adding.Go(func() error { return added(ctx, c.At(first), n) })
	}
	if err := adding.Wait(); err != nil {
		return 0, err
	}
	return time.Since(began).Seconds(), c.AwaitReady(ctx)
}

// added adds a coordinator and waits until it is a voter. It is refused until it answers.
func added(ctx context.Context, c cluster.Ctl, n *cluster.Coordinator) error {
	for {
		answer := c.Run(ctx, "cluster", "add", n.Name, n.Addr, "--wait")
		if answer.Code == 0 {
			return nil
		}
		if err := cluster.Pause(ctx, joinRetry); err != nil {
			return errors.Join(err, answer.Err())
		}
	}
}
