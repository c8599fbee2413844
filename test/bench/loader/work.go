package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/bench/load"
)

// submitters is how many jobs are submitted at a time.
const submitters = 4

// work is what is submitted.
type work struct {
	tasks, each, rate, payload int

	arrays bool // each job is one array
}

// do submits all tasks and waits until their ends are acknowledged.
func (w work) do(ctx context.Context, o options, l *load.Load) error {
	before := l.Stats().Completed
	cfg, err := o.identities.client(client.Config{Addrs: o.load.Addrs})
	if err != nil {
		return err
	}
	c, err := client.New(cfg)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer func() { _ = c.Close() }() // nothing is in flight any more
	g, submitting := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	began := time.Now()
	for at := 0; at < w.tasks; at += w.each {
		if w.rate > 0 {
			select {
			case <-time.After(time.Until(began.Add(time.Duration(at) * time.Second / time.Duration(w.rate)))):
			case <-submitting.Done():
			}
		}
		n := min(w.each, w.tasks-at)
		g.Go(func() error {
			job, err := w.job(n)
			if err != nil {
				return err
			}
			_, err = c.Submit(submitting, job, client.SubmitOptions{})
			return err //nolint:wrapcheck // says what it is
		})
	}
	if err := g.Wait(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.Stats().Completed-before < int64(w.tasks) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d tasks have ended: %w", l.Stats().Completed-before, w.tasks, context.Cause(ctx))
		}
	}
	return nil
}

// job makes one of n tasks that are ready from now on, when it is all there: what it
// takes to think of a job is not part of its wait.
func (w work) job(n int) (*dtaskv1.JobSpec, error) {
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "load"})
	if err != nil {
		return nil, fmt.Errorf("making a job: %w", err)
	}
	body := &dtaskv1.TaskBody{}
	if w.arrays {
		all := &dtaskv1.ArrayRange{Last: uint32(n - 1), Step: 1} //nolint:gosec // at most a million
		job.Tasks = []*dtaskv1.TaskSpec{{Id: "t", Body: body, Array: &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{all}}}}
	} else {
		job.Tasks = make([]*dtaskv1.TaskSpec, n)
		for i := range n {
			job.Tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", i), Body: body}
		}
	}
	body.Payload = load.Stamp(time.Now(), w.payload)
	return job, nil
}
