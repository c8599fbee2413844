package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/cluster"
)

// narrowQueue is the queue whose quotas and pauses the operator of the workload changes.
// wideQueue has another weight, and its tasks run in one zone. meteredQueue has one quota on a
// resource during the whole run. Checkers read in the log that no quota is exceeded, and in the
// ledger that of meteredQueue.
const (
	narrowQueue  = "narrow"
	wideQueue    = "wide"
	meteredQueue = "metered"
	meterQuota   = 3 // of Resource
	wideZone     = "a"
)

// Resource is the custom resource that workers must offer. A queue's quota is less than they
// offer together.
const Resource = "tape"

// queuedShapes are the jobs that name a queue. Their tasks are short and few: a client waits
// for its job, and must not spend most of a run behind a quota of one task.
func queuedShapes() []shape {
	return []shape{
		{name: "narrow", weight: 1, make: takers, queue: narrowQueue},
		{name: "weighted", weight: 2, make: fan, queue: wideQueue, pool: check.Rules{"zone": {wideZone}}},
		{name: "metered", weight: 2, make: takers, queue: meteredQueue, quota: meterQuota},
	}
}

// takers are tasks that take halves of the resource. Some may also take more than their least.
func takers(random *rand.Rand) []check.PlannedTask {
	tasks := fan(random)
	for i := range tasks {
		tasks[i].Takes = float64(1+random.IntN(3)) / 2
	}
	return tasks
}

// takes sets the resources of a task. The first alternative of some is of a resource that no
// worker has, and that of others is more than the task takes at least.
func takes(random *rand.Rand, least float64, file cluster.TaskFile) {
	last := map[string]any{Resource: least}
	switch random.IntN(6) {
	case 0:
		file["resources"] = []map[string]any{{"tpu": 1}, last}
	case 1:
		file["resources"] = []map[string]any{{Resource: least + 0.5}, last}
	default:
		file["resources"] = last
	}
}

// An operator sets quotas and weights of queues, and pauses and resumes them.
type operator struct {
	w      *Workload
	random *rand.Rand
}

// prepare makes the queues and limits that jobs name. It tries again until ctx is done.
func (o *operator) prepare(ctx context.Context) error {
	var err error
	for ctx.Err() == nil {
		if err = o.setAll(ctx); err == nil {
			return nil
		}
		_ = cluster.Pause(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("setting queues and limits: %w", err)
}

// setAll sets all queues and limits.
func (o *operator) setAll(ctx context.Context) error {
	for name, to := range map[string]*dtaskv1.QueueSettings{
		wideQueue:    {Weight: 3, Require: map[string]string{"zone": wideZone}},
		crampedQueue: {Weight: 1, MaxRunning: crampedRunning},
		meteredQueue: {Weight: 2, Max: map[string]int64{Resource: 1000 * meterQuota}},
	} {
		if _, err := o.w.clients[0].SetQueue(ctx, name, to, 0); err != nil {
			return err //nolint:wrapcheck // its callers try again
		}
	}
	if err := o.set(ctx); err != nil {
		return err
	}
	return o.setLimits(ctx)
}

func (o *operator) set(ctx context.Context) error {
	to := &dtaskv1.QueueSettings{Weight: 1 + o.random.Uint32N(4), MaxRunning: 1 + o.random.Uint32N(4)}
	if o.random.IntN(2) == 0 {
		to.Max = map[string]int64{Resource: 1500 + 500*o.random.Int64N(3)}
	}
	_, err := o.w.clients[0].SetQueue(ctx, narrowQueue, to, 0)
	return err //nolint:wrapcheck // its callers try again
}

// run changes the queue until the given time. Then it resumes the queue and lifts its quota,
// so that all jobs end soon.
func (o *operator) run(ctx, until context.Context) {
	for cluster.Pause(until, time.Duration(o.random.Int64N(int64(2*time.Second)))) == nil {
		// A change that fails is one of the faults, and the next one follows.
		switch o.random.IntN(12) {
		case 0:
			_, _, _ = o.w.clients[0].PauseQueue(until, narrowQueue, "by the workload")
		case 1, 2, 3, 4:
			_, _, _ = o.w.clients[0].ResumeQueue(until, narrowQueue)
		default:
			_ = o.set(until)
		}
	}
	for ctx.Err() == nil {
		_, err := o.w.clients[0].SetQueue(ctx, narrowQueue, &dtaskv1.QueueSettings{Weight: 1}, 0)
		if err == nil {
			_, _, err = o.w.clients[0].ResumeQueue(ctx, narrowQueue)
		}
		if err == nil {
			return
		}
		_ = cluster.Pause(ctx, 100*time.Millisecond)
	}
}
