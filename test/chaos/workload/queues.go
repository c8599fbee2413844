package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// narrowQueue is the queue whose quota and pauses the operator of the workload changes, and
// wideQueue one that only has another weight. Checkers read in the log that the quota is
// never exceeded.
const (
	narrowQueue = "narrow"
	wideQueue   = "wide"
)

// queuedShapes are the jobs that name a queue. Their tasks are short and few: a client waits
// for its job, and must not spend most of a run behind a quota of one task.
func queuedShapes() []shape {
	return []shape{
		{name: "narrow", weight: 1, make: fan, queue: narrowQueue},
		{name: "weighted", weight: 2, make: fan, queue: wideQueue},
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
		if _, err = o.w.clients[0].SetQueue(ctx, wideQueue, &dtaskv1.QueueSettings{Weight: 3}, 0); err == nil {
			if err = o.set(ctx); err == nil {
				if err = o.setLimits(ctx); err == nil {
					return nil
				}
			}
		}
		_ = cluster.Pause(ctx, 100*time.Millisecond)
	}
	return fmt.Errorf("setting queues and limits: %w", err)
}

func (o *operator) set(ctx context.Context) error {
	_, err := o.w.clients[0].SetQueue(ctx, narrowQueue, &dtaskv1.QueueSettings{Weight: 1 + o.random.Uint32N(4), MaxRunning: 1 + o.random.Uint32N(4)}, 0)
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
