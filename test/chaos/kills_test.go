package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestTenLeaderKills kills the leader, waits for the next one, restarts the killed
// one, and repeats when it is back.
func TestTenLeaderKills(t *testing.T) {
	seed, until := seedOf(t), untilOf(t, 0.6)
	random := rand.New(rand.NewPCG(seed, 100))
	l := start(t, seed)
	var slowest time.Duration
	const enough = 10 // kills, and commands that run during one: a slow machine runs few at a time
	kills := 0
	for ; kills < enough || time.Now().Before(until) || kills < 4*enough && l.through(t) < enough; kills++ {
		l.awaitBegun(t, 4)
		clustertest.Must(t, cluster.Pause(t.Context(), time.Duration(random.IntN(300))*time.Millisecond))
		leader := clustertest.Leader(t, l.c)
		killed := time.Now()
		l.kill(t, leader)
		next, err := l.c.AwaitLeaderOtherThan(t.Context(), leader)
		clustertest.Must(t, err)
		took := time.Since(killed)
		slowest = max(slowest, took)
		t.Logf("kill %d: %s leads %v after %s was killed", kills+1, next.Name, took.Round(time.Millisecond), leader.Name)
		clustertest.Must(t, leader.Start(t.Context()))
		clustertest.Must(t, l.c.AwaitCaughtUp(t.Context(), leader))
	}
	t.Logf("the slowest election took %v", slowest)
	clustertest.Must(t, clustertest.WithinFailoverLimit("election of the slowest successor", slowest))
	l.judge(t, enough)
}

// TestTwoKillsWithinASecond kills the leader and, within a second, the next leader or
// a likely successor. The first one is restarted immediately.
func TestTwoKillsWithinASecond(t *testing.T) {
	seed, until := seedOf(t), untilOf(t, 0.2)
	random := rand.New(rand.NewPCG(seed, 200))
	l := start(t, seed)
	for round := 0; round < 3 || time.Now().Before(until); round++ {
		l.awaitBegun(t, 4)
		first := clustertest.Leader(t, l.c)
		killed := time.Now()
		l.kill(t, first)
		clustertest.Must(t, first.Start(t.Context()))
		second := l.c.Followers(first)[random.IntN(2)]
		for time.Since(killed) < 900*time.Millisecond {
			status, err := l.c.Status(t.Context())
			if err != nil {
				continue
			}
			if next := l.c.Coordinator(status.Leader); next != nil && next != first && next.Running() {
				second = next
				break
			}
		}
		l.kill(t, second)
		t.Logf("round %d: %s killed, and %s after %v", round+1, first.Name, second.Name, time.Since(killed).Round(time.Millisecond))
		clustertest.Must(t, second.Start(t.Context()))
		for _, n := range l.c.Coordinators() {
			clustertest.Must(t, l.c.AwaitCaughtUp(t.Context(), n))
		}
	}
	l.judge(t, 1)
}

// TestAllCoordinatorsDownForTenSeconds kills all of them while commands run, some of
// which take longer than that.
func TestAllCoordinatorsDownForTenSeconds(t *testing.T) {
	seed, until := seedOf(t), untilOf(t, 0.2)
	l := start(t, seed)
	for round := 0; round < 1 || time.Now().Before(until); round++ {
		var long []cluster.TaskFile
		for _, id := range []string{"a", "b", "c"} {
			long = append(long, l.c.Programs.Mark(id, l.path, 13*time.Second))
		}
		_, err := l.submit(t.Context(), cluster.JobFileWith(map[string]any{"name": "long", "priority": "urgent"}, long...), nil)
		clustertest.Must(t, err)
		l.awaitBegun(t, 12)
		for _, n := range l.c.Coordinators() {
			l.kill(t, n)
		}
		clustertest.Must(t, cluster.Pause(t.Context(), 10*time.Second))
		for _, n := range l.c.Coordinators() {
			clustertest.Must(t, n.Start(t.Context()))
		}
		clustertest.Must(t, l.c.AwaitReady(t.Context()))
	}
	l.judge(t, 1)
}
