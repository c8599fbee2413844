package e2e

import (
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
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
	"github.com/dtask/dtask/test/record"
)

const (
	// scheduleKillsVariable is how many leaders are killed around a tick instead of
	// scheduleKills.
	scheduleKillsVariable = "DTASK_SCHEDULE_KILLS"
	scheduleKills         = 6
	// killSpread is how far from a tick a leader is killed, at most.
	killSpread = 50 * time.Millisecond
	// lateSlack is how long after a failover a tick may start that fell into it.
	lateSlack = 100 * time.Millisecond
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

// latenessByTick returns how late each job of a name was submitted, by its tick in seconds since
// 1970.
func latenessByTick(t *testing.T, c *cluster.Cluster, name string) map[int64][]time.Duration {
	t.Helper()
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }()
	late := make(map[int64][]time.Duration)
	for job, err := range cl.Jobs(t.Context(), client.JobFilter{Name: name}) {
		clustertest.Must(t, err)
		tick := job.GetRun().GetTickMs()
		late[tick/1000] = append(late[tick/1000], time.Duration(job.GetSubmittedAt()-tick)*time.Millisecond)
	}
	return late
}

// An outage is a time without a leader that can commit.
type outage struct{ from, until time.Time }

// excess returns how much later a tick started than it had to: it must start at once, or when
// the outage ends that it falls into.
func excess(tick time.Time, late time.Duration, outages []outage) time.Duration {
	for _, o := range outages {
		if !tick.Before(o.from) && tick.Before(o.until) {
			return late - o.until.Sub(tick)
		}
	}
	return late
}

// killAround kills the leader at an offset from a tick, and starts it again when there is
// another one. If the followers are paused from killSpread before the tick on, they continue
// then. It reports whether the leader's log had the fire of the tick.
func killAround(t *testing.T, c *cluster.Cluster, offset time.Duration, paused bool) (o outage, proposed bool) {
	t.Helper()
	ctx := t.Context()
	leader := clustertest.Leader(t, c)
	tick := time.Now().Truncate(time.Second).Add(2 * time.Second)
	var followers []*cluster.Coordinator
	if paused {
		followers = slices.DeleteFunc(c.Coordinators(), func(n *cluster.Coordinator) bool { return n == leader })
	}
	clustertest.Must(t, cluster.Pause(ctx, time.Until(tick.Add(-killSpread))))
	o.from = time.Now().Add(-killSpread) // a fire takes some time to be committed
	for _, n := range followers {
		clustertest.Must(t, n.Pause())
	}
	clustertest.Must(t, cluster.Pause(ctx, time.Until(tick.Add(offset))))
	clustertest.Must(t, leader.Kill())
	proposed = paused && hasFire(t, leader.DataDir, tick)
	for _, n := range followers {
		clustertest.Must(t, n.Resume())
	}
	_, err := c.AwaitLeaderOtherThan(ctx, leader)
	clustertest.Must(t, err)
	o.until = time.Now()
	clustertest.Must(t, leader.Start(ctx))
	clustertest.Must(t, c.AwaitCoordinator(ctx, leader))
	return o, proposed
}

// TestEachTickStartsOneJobWhileLeadersAreKilled kills one leader after another within 50 ms
// of a tick, every other one while its followers are paused: then its fire is in its log, and
// not acknowledged. Every second from the first tick to the last one has exactly one job. With
// scheduleKillsVariable, no tick is later than a failover and lateSlack. One half of the
// leaders has TLS and identities, unless clustertest.TLSVariable decides for all.
func TestEachTickStartsOneJobWhileLeadersAreKilled(t *testing.T) {
	kills := scheduleKills
	asked, err := strconv.Atoi(os.Getenv(scheduleKillsVariable))
	if err == nil {
		kills = asked
	}
	line := record.Run{Suite: "ticks"}
	record.AtEnd(t, &line)
	if os.Getenv(clustertest.TLSVariable) != "" {
		killAtTicks(t, &line, kills, asked, 1, clustertest.TLS(t, false))
		return
	}
	t.Run("without TLS", func(t *testing.T) { killAtTicks(t, &line, kills-kills/2, asked/2, 1, false) })
	t.Run("with TLS", func(t *testing.T) { killAtTicks(t, &line, kills/2, asked/2, 2, true) })
}

// killAtTicks is TestEachTickStartsOneJobWhileLeadersAreKilled for one cluster. asked is the
// part of the kills that the variable asks for. It adds what it has done to line.
func killAtTicks(t *testing.T, line *record.Run, kills, asked int, seed uint64, tls bool) {
	t.Helper()
	c := clustertest.Start(t, cluster.Config{Workers: 1, TLS: tls})
	setSchedule(t, c, everySecond)
	random := rand.New(rand.NewPCG(seed, 2))
	inFlight := 0
	var outages []outage
	for i := range kills {
		offset, paused := time.Duration(random.Int64N(2*int64(killSpread)))-killSpread, i%2 == 0
		if paused {
			offset = offset.Abs()
		}
		o, proposed := killAround(t, c, offset, paused)
		if proposed {
			inFlight++
		}
		outages = append(outages, o)
		t.Logf("kill %d: %v from the tick, unacknowledged: %t, without a leader for %v", i+1, offset, proposed, o.until.Sub(o.from))
	}
	clustertest.Must(t, cluster.Pause(t.Context(), 2*time.Second)) // ticks without a failover
	if got := c.Run(t.Context(), "schedule", "pause", "second"); got.Code != 0 {
		t.Fatal(got.Stderr)
	}
	late := latenessByTick(t, c, "second")
	line.LeaderKills += kills
	line.Unacknowledged += inFlight
	worst, worstTick := checkTicks(t, line, late, outages)
	t.Logf("%d ticks, %d leaders killed, %d of them with an unacknowledged fire; the latest tick started %v after the new leader was known, or after its time", len(late), kills, inFlight, worst)
	if 3*inFlight < asked {
		t.Errorf("only %d of %d leaders had an unacknowledged fire", inFlight, asked)
	}
	if asked > 0 && worst > lateSlack {
		t.Errorf("the tick %v started %v later than it had to, want at most %v", worstTick, worst, lateSlack)
	}
	if len(late) < 2*kills {
		t.Errorf("only %d ticks", len(late))
	}
}

// checkTicks checks that each second from the first tick to the last one has one job, which
// started after its tick. It adds them to line, and returns by how much the worst of them exceeds
// its outage.
func checkTicks(t *testing.T, line *record.Run, late map[int64][]time.Duration, outages []outage) (worst time.Duration, worstTick time.Time) {
	t.Helper()
	ticks := slices.Sorted(maps.Keys(late))
	if len(ticks) == 0 {
		t.Fatal("no tick has fired")
	}
	for at := ticks[0]; at <= ticks[len(ticks)-1]; at++ {
		tick, runs := time.Unix(at, 0).UTC(), late[at]
		line.Ticks++
		if len(runs) == 0 {
			line.Lost++
		}
		if len(runs) > 1 {
			line.Duplicated++
		}
		if len(runs) != 1 {
			t.Errorf("%d jobs ran for the tick %v, want 1", len(runs), tick)
			continue
		}
		if runs[0] < 0 {
			t.Errorf("the tick %v started %v early", tick, -runs[0])
		}
		if x := excess(tick, runs[0], outages); x > worst {
			worst, worstTick = x, tick
		}
	}
	return worst, worstTick
}

// The example of a schedule is set as its documentation says, runs by hand and for past
// ticks, and its commands know their tick.
func TestTheExampleOfAScheduleRuns(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	text, err := os.ReadFile("../../examples/schedule.yaml")
	clustertest.Must(t, err)
	marked := strings.Replace(string(text), `run: echo "`, `run: echo "$DTASK_SCHEDULED_AT after $DTASK_SCHEDULED_PREVIOUS"; echo "`, 1)
	setSchedule(t, c, marked)
	got := c.Run(t.Context(), "schedule", "run", "nightly", "--wait")
	if got.Code != 0 {
		t.Fatalf("run: exit %d, %s", got.Code, got.Stderr)
	}
	wantBackup := func(job, date string) {
		t.Helper()
		line := regexp.MustCompile(`(?m)^backup-` + date + `\.tar\.gz: [1-9]\d* bytes$`)
		if logs := c.Run(t.Context(), "logs", job+"/backup"); !line.MatchString(logs.Stdout) {
			t.Errorf("job %s wrote %q %s, want %s", job, logs.Stdout, logs.Stderr, line)
		}
	}
	wantBackup("@nightly", `\d{4}-\d\d-\d\d`) // a run by hand has no tick
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
		wantBackup(ids[i], want[:len("2026-03-26")])
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
