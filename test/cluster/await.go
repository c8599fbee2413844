package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AwaitLeader returns the leader once dtaskctl names one that runs.
func (c *Cluster) AwaitLeader(ctx context.Context) (*Coordinator, error) {
	return c.AwaitLeaderOtherThan(ctx, nil)
}

// AwaitLeaderOtherThan returns the leader once dtaskctl names one other than
// old.
func (c *Cluster) AwaitLeaderOtherThan(ctx context.Context, old *Coordinator) (*Coordinator, error) {
	var leader *Coordinator
	err := Until(ctx, "there is a leader", startLimit, func(ctx context.Context) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		leader = c.Coordinator(status.Leader)
		if leader == nil || leader == old || !leader.Running() {
			return fmt.Errorf("the leader is %q in term %d: %v", status.Leader, status.Term, status.Members)
		}
		return nil
	})
	return leader, err
}

// Followers are the coordinators other than the leader.
func (c *Cluster) Followers(leader *Coordinator) []*Coordinator {
	var others []*Coordinator
	for _, n := range c.coordinators {
		if n != leader {
			others = append(others, n)
		}
	}
	return others
}

// AwaitCoordinator returns once a coordinator says that it is ready.
func (c *Cluster) AwaitCoordinator(ctx context.Context, n *Coordinator) error {
	return Until(ctx, n.Name+" is ready", startLimit, func(ctx context.Context) error {
		if !n.Running() {
			return fmt.Errorf("%s has ended; its log is %s", n.Name, n.logPath)
		}
		return n.Get(ctx, "/readyz")
	})
}

// awaitLevel returns once the cluster has the highest feature level that all coordinators
// support. A new one gets there when each of them has announced what it supports.
func (c *Cluster) awaitLevel(ctx context.Context) error {
	return Until(ctx, "the cluster has the level of its builds", startLimit, func(ctx context.Context) error {
		var u struct {
			Level     uint32 `json:"level"`
			Supported uint32 `json:"supported"`
			Held      bool   `json:"held"`
		}
		a := c.Run(ctx, "cluster", "upgrade", "status", "-o", "json")
		err := a.Err()
		if err == nil {
			err = a.Into(&u)
		}
		if err == nil && !u.Held && (u.Supported == 0 || u.Level < u.Supported) {
			err = fmt.Errorf("%w: %s", ErrNotYet, a)
		}
		return err
	})
}

// AwaitCaughtUp returns once a coordinator follows or leads with all that the
// leader had applied.
func (c *Cluster) AwaitCaughtUp(ctx context.Context, n *Coordinator) error {
	if err := c.AwaitCoordinator(ctx, n); err != nil {
		return err
	}
	return Until(ctx, n.Name+" has caught up", startLimit, func(ctx context.Context) error {
		status, err := c.Status(ctx)
		if err != nil {
			return err
		}
		m, leader := status.Of(n), status.Member(status.Leader)
		const near = 64 // entries; under load nobody is ever at the very end
		if leader.ID == "" || m.State == "unreachable" || m.Applied+near < leader.Applied {
			return fmt.Errorf("%+v, leader %+v", m, leader)
		}
		return nil
	})
}

// AwaitWorker returns once the cluster shows a worker in a state.
func (c *Cluster) AwaitWorker(ctx context.Context, name, state string) error {
	return Until(ctx, "worker "+name+" is "+state, startLimit, func(ctx context.Context) error {
		workers, err := c.ListWorkers(ctx)
		if err != nil {
			return err
		}
		for _, w := range workers {
			if w.Name == name && w.State == state {
				return nil
			}
		}
		return fmt.Errorf("the workers are %+v", workers)
	})
}

// AwaitJob returns a job once cond holds for it, which is looked at with limit.
func (c *Cluster) AwaitJob(ctx context.Context, id string, limit time.Duration, what string, cond func(Job) bool) (Job, error) {
	var job Job
	err := Until(ctx, "job "+id+" "+what, limit, func(ctx context.Context) error {
		var err error
		if job, err = c.Job(ctx, id); err != nil {
			return err
		}
		if !cond(job) {
			return fmt.Errorf("it is %s with %d of %d tasks completed, %d failed", job.State, job.TasksCompleted, job.TasksTotal, job.TasksFailed)
		}
		return nil
	})
	return job, err
}

// AwaitEnd returns a job once it has ended, in whatever way.
func (c Ctl) AwaitEnd(ctx context.Context, id string, limit time.Duration) (Job, error) {
	a := c.Run(ctx, "wait", id, "--quiet", "--timeout", limit.String(), "-o", "json")
	if a.Code > 1 || a.Code < 0 { // 1: it ended, and not well
		return Job{}, a.Err()
	}
	return c.Job(ctx, id)
}

// askLimit is how long one answer of a coordinator may take: a guard, as startLimit.
const askLimit = 20 * time.Second

// Get asks a coordinator's web address for a path and returns nil for 200.
func (n *Coordinator) Get(ctx context.Context, path string) error {
	return n.http(ctx, http.MethodGet, path)
}

// Post posts nothing to a path and returns nil for 200.
func (n *Coordinator) Post(ctx context.Context, path string) error {
	return n.http(ctx, http.MethodPost, path)
}

// PostBody posts a body to a path and returns nil for 200.
func (n *Coordinator) PostBody(ctx context.Context, path, body string) error {
	_, err := n.ask(ctx, http.MethodPost, path, body, 1<<10)
	return err
}

// Page is what a coordinator's web address has at a path.
func (n *Coordinator) Page(ctx context.Context, path string) (string, error) {
	text, err := n.ask(ctx, http.MethodGet, path, "", 4<<20)
	return string(text), err
}

// Metrics are the figures that a coordinator shows of itself, by name and labels as
// they are written: dtask_history_incomplete.
func (n *Coordinator) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := n.Page(ctx, "/metrics")
	values := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, err := strconv.ParseFloat(number, 64); err == nil {
			values[name] = value
		}
	}
	return values, err
}

func (n *Coordinator) http(ctx context.Context, method, path string) error {
	_, err := n.ask(ctx, method, path, "", 1<<10)
	return err
}

// ask asks for a path with a body and returns what is answered with 200, up to a size.
func (n *Coordinator) ask(ctx context.Context, method, path, body string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+n.HTTP+path, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", n.Name, err)
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", n.Name, err)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, fmt.Errorf("asking %s: %w", n.Name, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s to %s: %s", n.Name, answer.Status, path, text)
	}
	return text, nil
}
