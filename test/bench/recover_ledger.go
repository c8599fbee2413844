package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// halfAtMostOnce is a job of which every second task is at-most-once. It completes even if
// all of these are lost.
func halfAtMostOnce(tasks int) (*dtaskv1.JobSpec, error) {
	job, err := pending("majority", tasks, nil)
	if err != nil {
		return nil, err
	}
	h := job.GetHeader()
	once := proto.CloneOf(h.GetPolicies()[0])
	once.Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	h.Policies = append(h.Policies, once)
	h.MaxFailures = uint32(tasks) //nolint:gosec // at most majorityTasks
	for i, task := range job.GetTasks() {
		if isAtMostOnce(i) {
			task.Policy = 1
		}
	}
	return job, nil
}

// isAtMostOnce reports whether a task of halfAtMostOnce is at-most-once.
func isAtMostOnce(task int) bool { return task%2 == 1 }

// completedStates are the states of a task whose completion was accepted.
var completedStates = []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED}

// A recoveryLedger compares what ran of a job with what its cluster says, before and after
// the cluster has been recovered.
type recoveryLedger struct {
	begins begins
	tasks  int
	kept   map[uint32]completion // tasks that the recovered directory has as completed
}

// A completion is one that was accepted, and how often its task had started by then.
type completion struct{ attempt, starts uint32 }

func newRecoveryLedger(tasks int) *recoveryLedger {
	l := &recoveryLedger{tasks: tasks, kept: make(map[uint32]completion)}
	l.begins.reset(tasks)
	return l
}

// starts is how often a task has started.
func (l *recoveryLedger) starts(task uint32) uint32 { return l.begins.list()[task].Load() }

// recovered notes the completions that the cluster has kept. No worker may run.
func (l *recoveryLedger) recovered(ctx context.Context, c *cluster.Cluster, id string) error {
	cl, err := c.Client()
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = cl.Close() }() // nothing is written
	for task, err := range cl.Tasks(ctx, id, client.TaskFilter{States: completedStates}) {
		if err != nil {
			return fmt.Errorf("listing the tasks that were kept: %w", err)
		}
		i := task.GetIndex()
		l.kept[i] = completion{task.GetAttempt(), l.starts(i)}
	}
	if len(l.kept) == 0 {
		return errors.New("the recovered cluster has kept no completion")
	}
	return nil
}

// check fails unless each task of the job that has ended is there, and each at-most-once one
// has started at most once and each kept completion is the only one of its task. It returns
// how many at-most-once tasks were lost, and how many others started more than once.
func (l *recoveryLedger) check(ctx context.Context, cl *client.Client, id string) (lost, again float64, err error) {
	seen, listed := make([]bool, l.tasks), 0
	for task, err := range cl.Tasks(ctx, id, client.TaskFilter{}) {
		if err != nil {
			return 0, 0, fmt.Errorf("listing the tasks: %w", err)
		}
		i := task.GetIndex()
		if int(i) >= l.tasks || seen[i] {
			return 0, 0, fmt.Errorf("the job has task %d twice or too much", i)
		}
		seen[i] = true
		listed++
		if err := l.checkTask(task); err != nil {
			return 0, 0, err
		}
		switch {
		case task.GetState() == dtaskv1.TaskState_TASK_STATE_LOST:
			lost++
		case l.starts(i) > 1:
			again++
		}
	}
	if listed != l.tasks {
		return 0, 0, fmt.Errorf("%d of %d tasks are missing", l.tasks-listed, l.tasks)
	}
	return lost, again, nil
}

// checkTask checks one task of a job that has ended.
func (l *recoveryLedger) checkTask(task *dtaskv1.Task) error {
	i, state := task.GetIndex(), task.GetState()
	starts, once := l.starts(i), isAtMostOnce(int(i))
	kept, wasKept := l.kept[i]
	switch {
	case once && starts > 1:
		return fmt.Errorf("at-most-once task %d started %d times", i, starts)
	case once && state == dtaskv1.TaskState_TASK_STATE_LOST && !wasKept:
		return nil
	case !slices.Contains(completedStates, state) || starts == 0:
		return fmt.Errorf("task %d is missing: it is %s, and started %d times", i, state, starts)
	case wasKept && kept != completion{task.GetAttempt(), starts}:
		return fmt.Errorf("task %d completed twice: attempt %d after %d starts, and attempt %d after %d", i, kept.attempt, kept.starts, task.GetAttempt(), starts)
	}
	return nil
}
