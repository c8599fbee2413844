package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// A largeRun has the results of one large job.
type largeRun struct {
	accepted, done, cancelled float64   // seconds
	status                    float64   // of one call, milliseconds
	shown                     []float64 // the same with dtaskctl, from its start to its end
	finished                  float64   // with dtaskctl when the job has just finished
	archived                  []float64 // with dtaskctl, when the job is read from the history; the first time first
}

// large measures one job of a million tasks, listed with two dependencies each and
// as an array: the time until it is accepted and until it completes, the latency of
// its status meanwhile, and the time to cancel a second one.
func large(ctx context.Context, b *bench) error {
	list, err := listed("listed", b.million)
	if err != nil {
		return err
	}
	array, err := arrayed(b.million)
	if err != nil {
		return err
	}
	if err := b.largeJob(ctx, "listed", "1,000 wide, two dependencies each, sent by the Go client", list); err != nil {
		return err
	}
	if err := b.largeJob(ctx, "array", "one record with a range", array); err != nil {
		return err
	}
	return plans(ctx, b)
}

// largeJob measures one kind of large job.
func (b *bench) largeJob(ctx context.Context, what, form string, job *dtaskv1.JobSpec) error {
	var all []largeRun
	err := with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		for range max(1, b.rounds/2) {
			r, err := oneLarge(ctx, c, cl, job, b.million)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var shown, first, archived []float64
	for _, r := range all {
		shown = append(shown, r.shown...)
		if len(r.archived) > 0 {
			first, archived = append(first, r.archived[0]), append(archived, r.archived[1:]...)
		}
	}
	setting := fmt.Sprintf("one job of %d tasks, %s, %s", b.million, form, b.usual())
	b.table.add(what+" job: accepted after", "s", setting, values(all, func(r largeRun) float64 { return r.accepted })...)
	b.table.compare(what+" job: tasks", "tasks/s", "from the start of the submission to the end", applyYardstick, values(all, func(r largeRun) float64 { return float64(b.million) / r.done })...)
	b.table.add(what+" job: status while it runs", "ms", "slowest answer", values(all, func(r largeRun) float64 { return r.status })...)
	b.table.add(what+" job: dtaskctl status while it runs", "ms", "a process, from its start to its end", shown...)
	b.table.add(what+" job: dtaskctl status, just finished", "ms", "the first time", values(all, func(r largeRun) float64 { return r.finished })...)
	b.table.add(what+" job: dtaskctl status from the history, first time", "ms", "the coordinators have just written the job to their files", first...)
	b.table.add(what+" job: dtaskctl status from the history, again", "ms", fmt.Sprintf("%d more times", archivedShows-1), archived...)
	b.table.add(what+" job: cancelled after", "s", "another job, just accepted", values(all, func(r largeRun) float64 { return r.cancelled })...)
	return nil
}

// showInterval is the number of status calls for each dtaskctl status.
const showInterval = 5

func oneLarge(ctx context.Context, c *cluster.Cluster, cl *client.Client, job *dtaskv1.JobSpec, tasks int) (largeRun, error) {
	var r largeRun
	began := time.Now()
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return r, fmt.Errorf("submitting: %w", err)
	}
	r.accepted = time.Since(began).Seconds()
	for calls := 0; ; calls++ {
		if calls%showInterval == 0 {
			took, err := showJob(ctx, c, submitted.ID)
			if err != nil {
				return r, err
			}
			r.shown = append(r.shown, took)
		}
		asked := time.Now()
		got, err := cl.Job(ctx, submitted.ID, client.ReadOptions{})
		if err != nil {
			return r, fmt.Errorf("reading job: %w", err)
		}
		r.status = max(r.status, float64(time.Since(asked).Microseconds())/1000)
		if client.Ended(got.GetState()) {
			if got.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
				return r, fmt.Errorf("job is %s: %s", got.GetState(), got.GetError())
			}
			break
		}
		if err := cluster.Pause(ctx, 20*time.Millisecond); err != nil {
			return r, err
		}
	}
	r.done = time.Since(began).Seconds()
	if r.finished, err = showJob(ctx, c, submitted.ID); err != nil {
		return r, err
	}
	if tasks >= leavesAtOnce {
		if r.archived, err = showArchived(ctx, c, submitted.ID); err != nil {
			return r, err
		}
	}
	if submitted, err = cl.Submit(ctx, job, client.SubmitOptions{}); err != nil {
		return r, fmt.Errorf("submitting second job: %w", err)
	}
	began = time.Now()
	if _, err := cl.CancelNow(ctx, submitted.ID, "measured"); err != nil {
		return r, fmt.Errorf("cancelling: %w", err)
	}
	r.cancelled = time.Since(began).Seconds()
	return r, nil
}

const (
	// archivedShows is how often a job of the history is shown.
	archivedShows = 11
	// leavesAtOnce is the number of completed tasks with which a job leaves the state
	// immediately. A smaller one stays for a minute, and is not shown from the history.
	leavesAtOnce = 250_000
)

// showArchived runs dtaskctl status when all coordinators have the completed job in
// their files.
func showArchived(ctx context.Context, c *cluster.Cluster, id string) ([]float64, error) {
	if err := cluster.Until(ctx, "job "+id+" is in the history", time.Minute, noneFinished(c)); err != nil {
		return nil, err //nolint:wrapcheck // says what it did
	}
	shown := make([]float64, archivedShows)
	for i := range shown {
		took, err := showJob(ctx, c, id)
		if err != nil {
			return nil, err
		}
		shown[i] = took
	}
	return shown, nil
}

// noneFinished returns a check that all completed jobs of a cluster are in the history of all
// coordinators.
func noneFinished(c *cluster.Cluster) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, n := range c.Coordinators() {
			got, err := n.Metrics(ctx)
			if err != nil {
				return err //nolint:wrapcheck // says what it did
			}
			if still := got[`dtask_jobs{state="completed"}`] + got["dtask_history_pending_jobs"]; still > 0 {
				return fmt.Errorf("%s has %v completed jobs in memory", n.Name, still)
			}
		}
		return nil
	}
}

// showJob runs dtaskctl status, and returns how many milliseconds it takes.
func showJob(ctx context.Context, c *cluster.Cluster, id string) (float64, error) {
	began := time.Now()
	if err := c.Run(ctx, "status", id).Err(); err != nil {
		return 0, err //nolint:wrapcheck // says what it did
	}
	return float64(time.Since(began).Microseconds()) / 1000, nil
}

// arrayed returns a job of one array of n no-op tasks.
func arrayed(n int) (*dtaskv1.JobSpec, error) {
	text := fmt.Sprintf("job:\n  name: array\n  tasks:\n    - {id: all, type: noop, array: {range: 0-%d}}\n", n-1)
	job, err := spec.Parse("array.yaml", []byte(text), spec.Options{Unfilled: true})
	if err != nil {
		return nil, fmt.Errorf("building job: %w", err)
	}
	return job, nil
}

// listed returns a job of n no-op tasks in levels of a thousand, each of which
// depends on two tasks of the previous level.
func listed(name string, n int) (*dtaskv1.JobSpec, error) {
	const width = 1000
	job, err := pending(name, n, nil)
	if err != nil {
		return nil, err
	}
	for i, task := range job.GetTasks() {
		if i >= width {
			above := uint32(i - width)
			if above%width == width-1 {
				above--
			}
			task.Dependencies = []uint32{above, above + 1}
		}
	}
	return job, nil
}

// pending returns a job of n independent no-op tasks with 32 bytes of payload, for
// workers with these labels.
func pending(name string, n int, require map[string]string) (*dtaskv1.JobSpec, error) {
	job, err := spec.Single(spec.SingleTask{Type: "noop", Payload: make([]byte, pendingPayload), Name: name})
	if err != nil {
		return nil, fmt.Errorf("building job: %w", err)
	}
	job.GetHeader().GetPolicies()[0].Require = require
	body := job.GetTasks()[0].GetBody()
	job.Tasks = make([]*dtaskv1.TaskSpec, n)
	for i := range job.GetTasks() {
		job.Tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%06d", i), Body: body}
	}
	return job, nil
}
