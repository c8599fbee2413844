package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// errWrong is returned when the demo did not show what it is to show.
var errWrong = errors.New("not everything is as it must be")

// judge compares, shows the final table, and returns errWrong if a row is bad.
func (d *demo) judge(job cluster.Job, fail failover) error {
	d.chapter("Is the result right?")
	d.tell("Counting the same files without dtask, in one plain loop.")
	want, err := countAlone(d.files)
	if err != nil {
		return err
	}
	var got map[string]uint64
	if job.State == "completed" {
		if got, err = readCounts(plan(d.groups, d.outputs)[d.tasks-1].Output); err != nil {
			return err
		}
	}
	executed, err := d.executions(job.ID)
	if err != nil {
		return err
	}
	again := 0
	for _, n := range executed {
		again += max(0, n-1)
	}
	perWorker, attempts, handedBack := make(map[string]int), 0, 0
	for _, t := range job.Tasks {
		perWorker[t.Worker]++
		attempts += t.Attempt
		handedBack += max(0, t.Attempt-executed[t.ID])
	}
	some, differ := differences(got, want)
	rows := []row{
		{"the job", fmt.Sprintf("%s, %d of %d tasks, in %s", job.State, job.TasksCompleted, d.tasks, millis(took(job))), job.State != "completed" || job.TasksCompleted != d.tasks},
		{"words by dtask", fmt.Sprintf("%s, %s different", count(total(got)), count(len(got))), false},
		{"words by a plain loop", fmt.Sprintf("%s, %s different", count(total(want)), count(len(want))), false},
		{"words whose counts differ", count(differ), differ > 0},
		{"tasks executed a second time", fmt.Sprintf("%d (by the workers' own logs)", again), again > 0},
		{"tasks never executed", fmt.Sprint(d.tasks - len(executed)), len(executed) != d.tasks},
		{"attempts", fmt.Sprintf("%d for %d tasks%s", attempts, d.tasks, notSent(handedBack)), attempts-handedBack != d.tasks},
		{"tasks per worker", describe(perWorker), false},
		{"from the kill until a leader answered", millis(fail.answered), false},
		{"longest time without a completed map", noMap(fail), false},
		{"the whole demo", fmt.Sprintf("%.1f s", time.Since(d.start).Seconds()), false},
	}
	d.chapter("What was seen")
	d.table(rows)
	for _, difference := range some {
		fmt.Fprintln(d.out, "      ", difference)
	}
	for _, r := range rows {
		if r.wrong {
			return errWrong
		}
	}
	d.chapter("The leader of the cluster was killed in the middle of the work, and nobody but this page would have noticed.")
	return nil
}

// noMap is the time without a completed map around the leader's death.
func noMap(fail failover) string {
	if !fail.left {
		return "no map was left"
	}
	return millis(fail.gap.Longest)
}

// notSent explains attempts beyond the first.
func notSent(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d had been decided and not yet sent when the leader died: assigned again)", n)
}

func took(job cluster.Job) time.Duration {
	if job.SubmittedAt == nil || job.CompletedAt == nil {
		return 0
	}
	return job.CompletedAt.Sub(*job.SubmittedAt)
}

// executions is how often each task of a job was executed, as the workers logged it.
func (d *demo) executions(job string) (map[string]int, error) {
	executed := make(map[string]int)
	for _, w := range d.cluster.Workers() {
		text, err := w.Log()
		if err != nil {
			return nil, err //nolint:wrapcheck // says what it did
		}
		addExecutions(executed, job, text)
	}
	return executed, nil
}

// addExecutions reads the log of one worker. What was released without having
// begun was not executed.
func addExecutions(executed map[string]int, job, log string) {
	for line := range strings.Lines(log) {
		var entry struct {
			Message string      `json:"msg"`
			Job     json.Number `json:"job_id"`
			Task    string      `json:"task_id"`
			Outcome string      `json:"outcome"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Message != "attempt ended" || entry.Job.String() != job {
			continue
		}
		if entry.Outcome != "OUTCOME_KIND_RELEASED" {
			executed[entry.Task]++
		}
	}
}
