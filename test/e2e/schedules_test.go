package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// scheduleKillsVariable is how many leaders are killed around a tick instead of
	// scheduleKills.
	scheduleKillsVariable = "DTASK_SCHEDULE_KILLS"
	scheduleKills         = 6
	// killSpread is how far from a tick a leader is killed, at most.
	killSpread = 50 * time.Millisecond
)

// everySecond is a job file whose job runs each second. All ticks that are missed run later.
const everySecond = `
job: {name: second, tasks: [{id: a, type: echo, payload: x}]}
schedule: {every: 1s, overlap: allow, missed: {run: all, within: 1h}}
`

// setSchedule sets a schedule from text.
func setSchedule(t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	clustertest.Must(t, c.RunWith(t.Context(), text, "schedule", "set", "-").Err())
}

// hasFire reports whether the log of a coordinator that was killed has the fire of a tick.
func hasFire(t *testing.T, dir string, tick time.Time) (found bool) {
	t.Helper()
	log, err := logstore.OpenReader(dir)
	clustertest.Must(t, err)
	defer func() { _ = log.Close() }()
	clustertest.Must(t, log.Entries(0, func(l *raft.Log) error {
		if l.Type != raft.LogCommand {
			return nil
		}
		entry, err := fsm.Decode(l.Data)
		for _, op := range entry.Ops {
			if fire, ok := op.(*fsm.Fire); ok && fire.TickMS == tick.UnixMilli() {
				found = true
			}
		}
		return err
	}))
	return found
}

// runsByTick returns how many jobs of a name ran for each tick, in seconds since 1970.
func runsByTick(t *testing.T, c *cluster.Cluster, name string) map[int64]int {
	t.Helper()
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }()
	runs := make(map[int64]int)
	for job, err := range cl.Jobs(t.Context(), client.JobFilter{Name: name}) {
		clustertest.Must(t, err)
		runs[job.GetRun().GetTickMs()/1000]++
	}
	return runs
}

// TestEachTickStartsOneJobWhileLeadersAreKilled kills one leader after another within 50 ms
// of a tick, every other one while its followers are paused: then its fire is in its log, and
// not acknowledged. Every second from the first tick to the last one has exactly one job.
func TestEachTickStartsOneJobWhileLeadersAreKilled(t *testing.T) {
	kills := scheduleKills
	asked, err := strconv.Atoi(os.Getenv(scheduleKillsVariable))
	if err == nil {
		kills = asked
	}
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	setSchedule(t, c, everySecond)
	random := rand.New(rand.NewPCG(1, 2))
	inFlight := 0
	for i := range kills {
		leader := clustertest.Leader(t, c)
		offset := time.Duration(random.Int64N(2*int64(killSpread))) - killSpread
		tick := time.Now().Truncate(time.Second).Add(2 * time.Second)
		var followers []*cluster.Coordinator
		if i%2 == 1 {
			offset = offset.Abs()
			followers = slices.DeleteFunc(c.Coordinators(), func(n *cluster.Coordinator) bool { return n == leader })
		}
		clustertest.Must(t, cluster.Pause(ctx, time.Until(tick.Add(-killSpread))))
		for _, n := range followers {
			clustertest.Must(t, n.Pause())
		}
		clustertest.Must(t, cluster.Pause(ctx, time.Until(tick.Add(offset))))
		clustertest.Must(t, leader.Kill())
		proposed := len(followers) > 0 && hasFire(t, leader.DataDir, tick)
		for _, n := range followers {
			clustertest.Must(t, n.Resume())
		}
		_, err := c.AwaitLeaderOtherThan(ctx, leader)
		clustertest.Must(t, err)
		clustertest.Must(t, leader.Start(ctx))
		clustertest.Must(t, c.AwaitCoordinator(ctx, leader))
		if proposed {
			inFlight++
		}
		t.Logf("kill %d: %v from the tick, unacknowledged: %t", i+1, offset, proposed)
	}
	clustertest.Must(t, cluster.Pause(ctx, 2*time.Second)) // ticks without a failover
	if got := c.Run(ctx, "schedule", "pause", "second"); got.Code != 0 {
		t.Fatal(got.Stderr)
	}
	runs := runsByTick(t, c, "second")
	first, last := int64(0), int64(0)
	for tick, n := range runs {
		if n != 1 {
			t.Errorf("%d jobs ran for the tick %v", n, time.Unix(tick, 0).UTC())
		}
		if first == 0 || tick < first {
			first = tick
		}
		last = max(last, tick)
	}
	for tick := first; tick <= last; tick++ {
		if runs[tick] == 0 {
			t.Errorf("no job ran for the tick %v", time.Unix(tick, 0).UTC())
		}
	}
	t.Logf("%d ticks, %d leaders killed, %d of them with an unacknowledged fire", len(runs), kills, inFlight)
	if 3*inFlight < asked {
		t.Errorf("only %d of %d leaders had an unacknowledged fire", inFlight, asked)
	}
	if len(runs) < 2*kills {
		t.Errorf("only %d ticks", len(runs))
	}
}

// The example of a schedule is set as its documentation says, runs by hand and for past
// ticks, and its commands know their tick.
func TestTheExampleOfAScheduleRuns(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	text, err := os.ReadFile("../../examples/schedule.yaml")
	clustertest.Must(t, err)
	marked := strings.Replace(string(text), "run: ls -l", `run: echo "$DTASK_SCHEDULED_AT after $DTASK_SCHEDULED_PREVIOUS"; ls -l`, 1)
	setSchedule(t, c, marked)
	got := c.Run(t.Context(), "schedule", "run", "nightly", "--wait")
	if got.Code != 0 {
		t.Fatalf("run: exit %d, %s", got.Code, got.Stderr)
	}
	if got = c.Run(t.Context(), "schedule", "pause", "nightly", "--reason", "test"); got.Code != 0 {
		t.Fatal(got.Stderr)
	}
	got = c.Run(t.Context(), "schedule", "backfill", "nightly", "--from", "2026-03-26T00:00:00Z", "--to", "2026-03-27T12:00:00Z", "-q")
	ids := strings.Fields(got.Stdout)
	if got.Code != 0 || len(ids) != 2 {
		t.Fatalf("backfill: exit %d, %q, %s", got.Code, got.Stdout, got.Stderr)
	}
	for i, want := range []string{"2026-03-26T01:30:00Z after 2026-03-25T01:30:00Z", "2026-03-27T01:30:00Z after 2026-03-26T01:30:00Z"} {
		job, err := c.AwaitEnd(t.Context(), ids[i], guard)
		clustertest.Must(t, err)
		if job.State != "completed" {
			t.Errorf("job %s is %s", ids[i], job.State)
		}
		if got = c.Run(t.Context(), "logs", ids[i]+"/report"); !strings.Contains(got.Stdout, want) {
			t.Errorf("job %s wrote %q %s, want %q", ids[i], got.Stdout, got.Stderr, want)
		}
	}
	got = c.Run(t.Context(), "schedule", "show", "nightly")
	for _, want := range []string{"schedule nightly (version 1): paused", "it is paused since", ": test", "backfill", "started by a user"} {
		if !strings.Contains(got.Stdout, want) {
			t.Errorf("show lacks %q: exit %d\n%s%s", want, got.Code, got.Stdout, got.Stderr)
		}
	}
}
