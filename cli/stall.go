package cli

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// stallInterval is how often a command that waits for a job checks whether tasks run.
	// Most workers need less to start one.
	stallInterval = 3 * time.Second
	// maxStallTasks is how many pending tasks are searched for one with a reason.
	maxStallTasks = 100
)

// A stallReporter reports why no task runs of a job that a command waits for: no worker is
// able to run one, or the job waits for others. A reason is not repeated until it changes.
type stallReporter struct {
	reason func(context.Context) (string, error) // empty: a worker can run the tasks, or all have ended
	note   func(text string)

	stalled atomic.Bool            // tasks are pending, and none runs
	needs   atomic.Pointer[string] // what the job waits for; nil = nothing
}

func newStallReporter(c *client.Client, id string, note func(text string)) *stallReporter {
	return &stallReporter{note: note, reason: func(ctx context.Context) (string, error) {
		pending := client.TaskFilter{States: []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_PENDING}}
		tasks, _, err := c.MostUrgentTasks(ctx, id, pending, maxStallTasks)
		for _, t := range tasks {
			if t.GetPendingReason() != "" {
				return fmt.Sprintf("task %s/%s is pending: %s", id, show.Clean(t.GetId()), show.Clean(t.GetPendingReason())), nil
			}
		}
		return "", err
	}}
}

// observe takes the current state of the job.
func (r *stallReporter) observe(j *dtaskv1.Job) {
	n := j.GetTasksByState()
	r.stalled.Store(n["pending"] > 0 && n["running"]+n["assigned"] == 0)
	r.needs.Store(nil)
	if gate := show.Gate(j); gate != "" {
		why := fmt.Sprintf("job %s: %s", j.GetId(), gate)
		r.needs.Store(&why)
	}
	if j.GetWaiting() {
		why := fmt.Sprintf("job %s waits for %s", j.GetId(), show.OpenNeeds(j.GetNeeds()))
		r.needs.Store(&why)
	}
}

// why returns the current reason; empty without one.
func (r *stallReporter) why(ctx context.Context) string {
	if needs := r.needs.Load(); needs != nil {
		return *needs
	}
	if !r.stalled.Load() {
		return ""
	}
	why, err := r.reason(ctx)
	if err != nil {
		return "" // the command reports errors itself: it waits for the same coordinators
	}
	return why
}

// start starts the goroutine of the reporter. stop ends it and waits for it.
func (r *stallReporter) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (r *stallReporter) run(ctx context.Context) {
	ticker := time.NewTicker(stallInterval)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if why := r.why(ctx); why != "" && why != reported {
			r.note(why)
			reported = why
		}
	}
}
