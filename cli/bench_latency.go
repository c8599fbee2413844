package cli

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// usualSample is how many tasks are looked at if nobody said.
	usualSample = 100_000
	// sampledJobs is of how many jobs these are at most: each is two reads.
	sampledJobs = 200
)

// A spread says how long something took, in milliseconds.
type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// spreadOf is nil if there is nothing to tell.
func spreadOf(took []time.Duration) *spread {
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		// The nearest rank: that many of a hundred took no longer.
		rank := int(math.Ceil(share*float64(len(took)))) - 1
		return round3(float64(took[max(rank, 0)]) / float64(time.Millisecond))
	}
	return &spread{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

// taskTimes are how long tasks took.
type taskTimes struct {
	tasks    int // looked at
	begin    []time.Duration
	endToEnd []time.Duration
}

// sample asks for the tasks of some of the jobs, evenly over the run. Jobs that
// the cluster has forgotten already are left out. Any replica may answer: what it
// does not know yet is left out, too.
func (l *load) sample(ctx context.Context) (taskTimes, error) {
	var times taskTimes
	total := 0
	for _, j := range l.jobs {
		total += j.tasks
	}
	if l.flags.sample == 0 {
		return times, nil
	}
	every := max(1, (total+l.flags.sample-1)/l.flags.sample, (len(l.jobs)+sampledJobs-1)/sampledJobs)
	for i := 0; i < len(l.jobs); i += every {
		err := l.sampleJob(ctx, l.jobs[i], &times)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return times, err
		}
		if times.tasks >= l.flags.sample {
			break
		}
	}
	return times, nil
}

func (l *load) sampleJob(ctx context.Context, j stored, times *taskTimes) error {
	job, err := l.client.Job(ctx, j.ID, client.ReadOptions{Stale: true})
	if err != nil {
		return err
	}
	ended := make([]int64, 0, j.tasks) // by index
	for task, err := range l.client.Tasks(ctx, j.ID, client.TaskFilter{Stale: true}) {
		if err != nil {
			return err
		}
		ready := job.GetSubmittedAt()
		for _, d := range l.flags.shape.dependencies(int(task.GetIndex()), l.flags.width) {
			if int(d) < len(ended) {
				ready = max(ready, ended[d])
			}
		}
		ended = append(ended, task.GetCompletedAt())
		if !completed(task) {
			continue
		}
		times.tasks++
		times.begin = append(times.begin, since(ready, task.GetStartedAt()))
		times.endToEnd = append(times.endToEnd, since(job.GetSubmittedAt(), task.GetCompletedAt()))
		if times.tasks >= l.flags.sample {
			return nil
		}
	}
	return nil
}

func completed(t *dtaskv1.Task) bool {
	return t.GetState() == dtaskv1.TaskState_TASK_STATE_COMPLETED || t.GetState() == dtaskv1.TaskState_TASK_STATE_AGGREGATED
}

// since is the time between two moments in milliseconds; never negative, though
// what is counted back may be rounded so.
func since(from, to int64) time.Duration {
	return time.Duration(max(0, to-from)) * time.Millisecond
}
