package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// diamond is checked by the ledger.
func diamond(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	path, work := ledgerOf(c), 100*time.Millisecond
	after := map[string][]string{"left": {"top"}, "right": {"top"}, "bottom": {"left", "right"}}
	tasks := []cluster.TaskFile{c.Programs.Mark("top", path, work)}
	for _, id := range []string{"left", "right", "bottom"} {
		tasks = append(tasks, c.Programs.Mark(id, path, work).After(after[id]...))
	}
	job := completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("diamond", tasks...)))
	checkLedger(t, c, nil, judged(job, after))
	if n := len(readLedger(t, c)); n != 8 {
		t.Errorf("got %d ledger lines, want a start and an end of each of 4", n)
	}
}

func chain(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const length = 1000
	after := map[string][]string{}
	tasks := []cluster.TaskFile{cluster.Builtin("link-0", "noop", "")}
	for i := 1; i < length; i++ {
		id := fmt.Sprintf("link-%d", i)
		after[id] = []string{fmt.Sprintf("link-%d", i-1)}
		tasks = append(tasks, cluster.Builtin(id, "noop", "").After(after[id]...))
	}
	steadily(t, c, func() string {
		stolen := steals(t, c)
		job := completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("chain", tasks...)))
		return checkTimes(t, job, after, length, steals(t, c)-stolen)
	})
}

func fan(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const width = 10_000
	after := map[string][]string{}
	tasks := []cluster.TaskFile{cluster.Builtin("first", "noop", "")}
	var middle []string
	for i := range width {
		id := fmt.Sprintf("middle-%d", i)
		after[id] = []string{"first"}
		tasks = append(tasks, cluster.Builtin(id, "noop", "").After("first"))
		middle = append(middle, id)
	}
	after["last"] = middle
	tasks = append(tasks, cluster.Builtin("last", "noop", "").After(middle...))
	steadily(t, c, func() string {
		stolen := steals(t, c)
		job := completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("fan", tasks...)))
		return checkTimes(t, job, after, width+2, steals(t, c)-stolen)
	})
}

// steals returns the number of waiting attempts that were moved to another worker so
// far.
func steals(t *testing.T, c *cluster.Cluster) int {
	t.Helper()
	n := 0
	for _, coordinator := range c.Coordinators() {
		values, err := coordinator.Metrics(t.Context())
		clustertest.Must(t, err)
		n += int(values["dtask_steals_total"])
	}
	return n
}

// checkTimes checks by the times of a job's tasks that none started before its
// dependencies had ended, and that all completed. It returns what repeats returns.
func checkTimes(t *testing.T, job cluster.Job, after map[string][]string, total, stolen int) (repeated string) {
	t.Helper()
	if job.TasksCompleted != total || len(job.Tasks) != total {
		t.Errorf("job %s: got %d of %d tasks completed and %d shown, want %d", job.ID, job.TasksCompleted, job.TasksTotal, len(job.Tasks), total)
	}
	byID := make(map[string]cluster.Task, len(job.Tasks))
	for _, task := range job.Tasks {
		byID[task.ID] = task
	}
	for _, task := range job.Tasks {
		if task.StartedAt == nil || task.CompletedAt == nil || task.CompletedAt.Before(*task.StartedAt) {
			t.Errorf("job %s: task %s began %v, ended %v", job.ID, task.ID, task.StartedAt, task.CompletedAt)
			continue
		}
		for _, id := range after[task.ID] {
			if ended := byID[id].CompletedAt; ended == nil || task.StartedAt.Before(*ended) {
				t.Errorf("job %s: task %s started at %v, before %s had ended at %v", job.ID, task.ID, task.StartedAt, id, ended)
			}
		}
	}
	return repeats(stolen, job)
}

// repeats reports attempts that were repeated and not stolen from a worker where they
// waited: a leader that loses leadership may have assigned attempts without sending them,
// and they are assigned again.
func repeats(stolen int, jobs ...cluster.Job) (repeated string) {
	n, total := 0, 0
	for _, job := range jobs {
		n += job.Retries + job.Requeues
		total += job.TasksTotal
	}
	if n > stolen {
		repeated = fmt.Sprintf("%d tasks of %d were repeated, %d of them stolen", n, total, stolen)
	}
	return repeated
}
