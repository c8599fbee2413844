package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// defaults are the options of a run of several minutes.
func defaults(t *testing.T, minutes float64) options {
	t.Helper()
	seed := number(t, seedVariable, rand.Uint64())
	return options{
		Seed: seed, TLS: clustertest.TLSOf(t, seed), For: time.Duration(number(t, minutesVariable, minutes) * float64(time.Minute)),
		Workers: 4, Slots: 6, Clients: 10, Safety: 40 * time.Second, Pace: 4 * time.Second, Most: 12 * time.Second,
		Kills: number(t, killsVariable, 0),
		Disks: os.Getenv(disksVariable) != "0" && faultfs.Available() == nil,
	}
}

// minRate is how many calls must succeed for each second that a run is to last.
const minRate = 3

// maxLonger is how many times as long a run may last as it is to, until it has proven enough: on a
// slow machine it does less in the same time.
const maxLonger = 2

// TestSmoke is the suite's part of each CI run: every kind of fault that can be
// applied to processes and links, many killed leaders, much work, and no broken
// promise.
func TestSmoke(t *testing.T) {
	if os.Getenv(suiteVariable) != "smoke" {
		t.Skip("make chaos-smoke runs this")
	}
	o := defaults(t, 7)
	o.TLS = clustertest.TLS(t, true)
	o.Kills = number(t, killsVariable, 60)
	o.MinKinds, o.MinLeaderKills, o.MinTasks = 30, 60, 10_000
	chaos(t, o)
}

// TestNemesis runs for the requested time.
func TestNemesis(t *testing.T) {
	if os.Getenv(minutesVariable) == "" || os.Getenv(suiteVariable) != "" {
		t.Skip("make chaos runs this")
	}
	o := defaults(t, 5)
	o.MinKinds = kindsOf(o.For)
	chaos(t, o)
}

// kindsOf returns how many kinds of faults a run of this length must fire at least.
// The deck has at most a few hundred cards. About one per second is drawn, and half
// of them affect something that is not broken already.
func kindsOf(lasts time.Duration) int {
	switch {
	case os.Getenv(faultsVariable) != "":
		return 1
	case lasts < 5*time.Minute:
		return int(lasts.Minutes() * 5)
	case lasts < 10*time.Minute:
		return 30
	}
	return 45
}

// scheduledOf returns how many starts a run must compare with rates, quotas, labels and GPUs, and how
// many attempts it must preempt at least: about a tenth of what two busy processors do. A leader
// that is elected soon after a worker was lost starts nothing with limits for a lease of 30 s, so
// that few tasks with a rate are certain, however long the run is. One that only kills, or has
// chosen faults, has no minimum.
func scheduledOf(o *options) check.Scheduled {
	if o.For < 2*time.Minute || os.Getenv(faultsVariable) != "" {
		return check.Scheduled{}
	}
	times := func(perMinute float64) int { return int(o.For.Minutes() * perMinute) }
	return check.Scheduled{Rated: 3, Metered: times(3), Full: times(0.3), Placed: times(20), GPUs: times(5), Preempted: max(1, times(0.5))}
}

// TestKills only kills leaders, for the requested time.
func TestKills(t *testing.T) {
	if os.Getenv(suiteVariable) != "kills" {
		t.Skip("make chaos-kills runs this")
	}
	o := defaults(t, 5)
	o.Disks = false // only processes break here
	o.Kills, o.KillsFor, o.For = 1<<20, o.For, 0
	chaos(t, o)
}

// tookOf returns the median and the maximum of what some steps took.
func tookOf(steps []nemesis.Step) string {
	if len(steps) == 0 {
		return "none"
	}
	var times []time.Duration
	for _, s := range steps {
		times = append(times, s.Took)
	}
	slices.Sort(times)
	return fmt.Sprintf("median %s, maximum %s", times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
}

// chaos kills leaders in a row, and then runs a plan of all faults.
func chaos(t *testing.T, o options) {
	t.Helper()
	faults := chosen(&o)
	o.MinCalls = int(minRate * max(o.For, o.KillsFor).Seconds())
	o.Often = oftenOf(t, faults)
	o.MinScheduled = scheduledOf(&o)
	r := startRun(t, o)
	var trouble error
	if o.Kills > 0 {
		began := time.Now()
		ctx := t.Context()
		if o.KillsFor > 0 {
			limited, cancel := context.WithTimeout(ctx, o.KillsFor)
			defer cancel()
			ctx = limited
		}
		out, err := r.world.KillLeaders(ctx, o.Kills, func() int64 { return r.work.Tally().Ended })
		trouble = err
		if out != nil {
			r.out.Add(out)
			t.Logf("%d leaders killed in a row in %s; killed → work resumed under another leader, and the killed one is back: %s",
				len(out.Steps), time.Since(began).Round(time.Second), tookOf(out.Steps))
		}
	}
	if trouble == nil && o.For > 0 {
		until, latest := time.Now().Add(o.For), time.Now().Add(maxLonger*o.For)
		out, err := nemesis.Run(t.Context(), r.world, nemesis.Options{
			Seed: o.Seed, Faults: faults, Often: o.Often, Phases: 1 << 20, Safety: o.Safety, Pace: o.Pace, Most: o.Most, Alive: r.alive,
			Enough: func(out *nemesis.Outcome) bool {
				now, all := time.Now(), r.out.With(out)
				return now.After(latest) || now.After(until) && len(tooLittle(&o, r.proof(all))) == 0
			},
		})
		trouble = err
		r.out.Add(out)
	}
	r.judge(t, trouble)
}
