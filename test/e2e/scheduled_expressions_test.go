package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// eastern is a job file whose ticks have another date in UTC. A task without an array, an array
// and an environment use them.
const eastern = `
job:
  name: eastern
  tasks:
    - {id: report, run: 'echo "<${{ scheduled.date }} ${{ scheduled.at }} ${{ scheduled.previous }} $DTASK_SCHEDULED_AT $DTASK_SCHEDULED_PREVIOUS $DAY>"', env: {DAY: "of ${{ scheduled.date }} $${{ x }}"}}
    - {id: part, array: {range: 3-4}, run: 'echo "<${{ index }} ${{ scheduled.date }}>"'}
schedule: {cron: "30 2 * * *", timezone: Pacific/Kiritimati, overlap: allow}
`

// wantLogs waits for the end of a job, and compares what its tasks have written.
func wantLogs(t *testing.T, c *cluster.Cluster, id string, want map[string]string) {
	t.Helper()
	job, err := c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Errorf("job %s is %s", id, job.State)
	}
	for task, text := range want {
		if got := c.Run(t.Context(), "logs", id+"/"+task); !strings.Contains(got.Stdout, "<"+text+">") {
			t.Errorf("task %s of job %s wrote %q %s, want %q", task, id, got.Stdout, got.Stderr, text)
		}
	}
}

// The tasks of a run know the date of its tick in the time zone of the schedule, and so do those
// of a rerun, also without the schedule. A rerun is not a run of the schedule.
func TestTheTasksOfARunAndOfItsRerunKnowTheDateOfTheTick(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	setSchedule(t, c, eastern)
	run := func(args ...string) string {
		t.Helper()
		got := c.Run(t.Context(), args...)
		if got.Code != 0 {
			t.Fatalf("dtaskctl %s: exit %d, %s", strings.Join(args, " "), got.Code, got.Stderr)
		}
		return strings.TrimSpace(got.Stdout)
	}
	atTick := map[string]string{
		"report":  "2026-03-28 2026-03-27T12:30:00Z 2026-03-26T12:30:00Z 2026-03-27T12:30:00Z 2026-03-26T12:30:00Z of 2026-03-28 ${{ x }}",
		"part[4]": "4 2026-03-28",
	}
	byHand := map[string]string{"report": "     of  ${{ x }}", "part[3]": "3 "}

	tick := run("schedule", "backfill", "eastern", "--from", "2026-03-27T12:00:00Z", "--to", "2026-03-27T13:00:00Z", "-q")
	wantLogs(t, c, tick, atTick)
	hand := run("schedule", "run", "eastern", "-q")
	wantLogs(t, c, hand, byHand)

	outcomes := run("schedule", "show", "eastern", "-o", "json")
	wantLogs(t, c, run("rerun", hand, "-q"), byHand)
	again := run("rerun", tick, "-q")
	wantLogs(t, c, again, atTick)
	if now := run("schedule", "show", "eastern", "-o", "json"); strings.Count(now, `"job"`) != strings.Count(outcomes, `"job"`) || strings.Contains(now, fmt.Sprintf("%q", again)) {
		t.Errorf("the rerun is among the runs of the schedule:\n%s", now)
	}
	if got := run("status", again); !strings.Contains(got, "tick 2026-03-27 12:30:00Z, a rerun of job "+tick) {
		t.Errorf("status of the rerun: got %s", got)
	}
	run("schedule", "delete", "eastern")
	wantLogs(t, c, run("rerun", again, "-q"), atTick)

	got := c.Run(t.Context(), "rerun", "999", "-q")
	if got.Code != 4 || got.Stdout != "" {
		t.Errorf("a rerun of an unknown job: exit %d, %q, %s", got.Code, got.Stdout, got.Stderr)
	}
}
