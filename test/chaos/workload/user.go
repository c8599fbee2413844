package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster"
)

// A user is one client with its own random sequence. It makes one call at a time.
type user struct {
	w      *Workload
	c      *client.Client
	number int
	random *rand.Rand
	jobs   int
	shapes []shape
}

func (u *user) run(ctx, until context.Context) {
	for until.Err() == nil && ctx.Err() == nil {
		u.jobs++
		if err := u.one(ctx, until); err != nil {
			u.w.broken(err)
			return
		}
		if cluster.Pause(until, time.Duration(u.random.Int64N(int64(u.w.cfg.Pause)))) != nil {
			return
		}
	}
}

// chance is true n times out of ten.
func (u *user) chance(n int) bool { return u.random.IntN(10) < n }

func (u *user) pick() shape {
	all := u.shapes
	sum := 0
	for _, s := range all {
		sum += s.weight
	}
	n := u.random.IntN(sum)
	for _, s := range all {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	return all[0]
}

// one runs one job from submission to end.
func (u *user) one(ctx, until context.Context) error {
	s := u.pick()
	name := fmt.Sprintf("%s-%d-%d", s.name, u.number, u.jobs)
	key := fmt.Sprintf("key-%d-%d-%d", u.w.cfg.Seed, u.number, u.jobs)
	job, plan, err := u.w.build(u.random, s, name, key)
	if err != nil {
		return err
	}
	u.w.plan(plan)
	id := u.submit(ctx, job, plan)
	for tries := 0; id == "" && tries < 5 && u.chance(8); tries++ {
		id = u.submit(ctx, job, plan) // after an unknown outcome, as users do
	}
	if id == "" {
		return nil
	}
	u.w.acked.Add(1)
	u.w.tasks.Add(int64(len(plan.Tasks)))
	u.w.submitted(id, plan)
	if u.chance(1) {
		u.submit(ctx, job, plan) // a repetition of a stored job
	}
	if u.random.IntN(30) == 0 {
		u.other(ctx, plan)
	}
	if u.chance(5) {
		_, _ = u.read(ctx, id, false) // recorded
	}
	if u.chance(s.cancels) {
		u.cancel(ctx, until, id, plan)
	}
	u.end(ctx, until, id, plan)
	return nil
}

func (u *user) submit(ctx context.Context, job *dtaskv1.JobSpec, plan check.Plan) string {
	c, err := u.w.call(history.Call{Client: u.number, Kind: history.Submit, Key: plan.Key, Body: plan.Body, Tasks: len(plan.Tasks)},
		func(c *history.Call) error {
			got, err := u.c.Submit(ctx, job, client.SubmitOptions{Key: plan.Key})
			c.Job, c.Already = got.ID, got.Existed
			return err //nolint:wrapcheck // recorded in any case
		})
	if err != nil {
		return ""
	}
	return c.Job
}

// other submits another job with the same key: a conflict.
func (u *user) other(ctx context.Context, plan check.Plan) {
	job, fake, err := u.w.build(u.random, shapes()[0], plan.Name+"-other", plan.Key)
	if err == nil {
		u.submit(ctx, job, fake)
	}
}

func (u *user) read(ctx context.Context, id string, stale bool) (history.Call, error) {
	kind := history.Read
	if stale {
		kind = history.Stale
	}
	return u.w.call(history.Call{Client: u.number, Kind: kind, Job: id}, func(c *history.Call) error {
		job, err := u.c.Job(ctx, id, client.ReadOptions{Stale: stale})
		if err == nil {
			c.State, c.Count = jobState(job), int(job.GetTasksCompleted())
		}
		return err //nolint:wrapcheck // recorded in any case
	})
}

func (u *user) readTask(ctx context.Context, id, task string) {
	_, _ = u.w.call(history.Call{Client: u.number, Kind: history.Read, Job: id, Task: task}, func(c *history.Call) error {
		for t, err := range u.c.Tasks(ctx, id, client.TaskFilter{Task: task}) {
			if err != nil {
				return err //nolint:wrapcheck // recorded in any case
			}
			c.State, c.Attempt = taskState(t), int(t.GetAttempt())
		}
		return nil
	}) // a failure is recorded and doesn't stop the user
}

// cancel tries to cancel the job, or a task, while it runs.
func (u *user) cancel(ctx, until context.Context, id string, plan check.Plan) {
	if cluster.Pause(until, time.Duration(u.random.Int64N(int64(1500*time.Millisecond)))) != nil {
		return
	}
	task := ""
	if u.chance(4) {
		task = plan.Tasks[u.random.IntN(len(plan.Tasks))].ID
		u.readTask(ctx, id, task)
	}
	for range 1 + u.random.IntN(2) {
		_ = u.cancelOnce(ctx, id, task) // a failure is recorded and doesn't stop the user
	}
	if task == "" {
		_, _ = u.read(ctx, id, false)
	} else {
		u.readTask(ctx, id, task)
	}
}

// cancelOnce cancels a job or a task.
func (u *user) cancelOnce(ctx context.Context, id, task string) error {
	_, err := u.w.call(history.Call{Client: u.number, Kind: history.Cancel, Job: id, Task: task}, func(c *history.Call) error {
		already, err := u.c.Cancel(ctx, id, task, "by the workload")
		c.Already = already
		return err //nolint:wrapcheck // recorded in any case
	})
	return err
}

// end waits for the end of a job, and reads the job then and occasionally before.
func (u *user) end(ctx, until context.Context, id string, plan check.Plan) {
	for until.Err() == nil && ctx.Err() == nil {
		limit := time.Duration(200+u.random.IntN(3000)) * time.Millisecond
		waiting, cancel := context.WithTimeout(until, limit)
		_, err := u.c.Wait(waiting, id)
		cancel()
		if err == nil {
			break
		}
		if u.chance(3) {
			u.readTask(ctx, id, plan.Tasks[u.random.IntN(len(plan.Tasks))].ID)
		}
		if c, err := u.read(ctx, id, u.chance(2)); err == nil && (c.State == "completed" || c.State == "failed" || c.State == "cancelled") {
			break
		}
	}
	if c, err := u.read(ctx, id, false); err == nil && c.State != "pending" && c.State != "running" {
		u.w.completed.Add(1)
	}
}
