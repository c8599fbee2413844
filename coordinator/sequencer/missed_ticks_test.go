package sequencer_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// A fired is a decision about a tick in the log.
type fired struct {
	*fsm.Fire

	atMS int64
}

// isMissed reports whether the tick was decided more than 10 s late.
func (x fired) isMissed() bool { return x.atMS-x.TickMS > 10_000 }

// fires returns the decisions about ticks in their order: the state has only the last 20 of a
// schedule.
func (c *cluster) fires() (list []fired) {
	c.t.Helper()
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for _, data := range c.log.entries {
		e, err := fsm.Decode(data)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, op := range e.Ops {
			if op, ok := op.(*fsm.Fire); ok {
				list = append(list, fired{op, e.NowMS})
			}
		}
	}
	return list
}

// missedRuns returns the runs for ticks that were missed, and fails the test if more than 20 of them
// start within a second. Entries have whole milliseconds.
func (c *cluster) missedRuns() (runs []fired) {
	c.t.Helper()
	for _, x := range c.fires() {
		if x.isMissed() && x.Decision == fsm.TickRuns {
			runs = append(runs, x)
		}
	}
	for i := 20; i < len(runs); i++ {
		if took := runs[i].atMS - runs[i-20].atMS; took < 999 {
			c.t.Errorf("missed runs %d to %d start within %d ms", i-20, i, took)
		}
	}
	return runs
}

// missedRules are what happens to the ticks of a schedule, each 10 s, of which those from 20 s on
// are decided at 94 s: the one at 90 s is on time, and the ones before are missed.
var missedRules = map[string]struct {
	rules fsm.ScheduleRules
	want  string
}{
	"one":           {fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedOne, WithinMS: 60_000}, "10 runs; 80 runs after 6; 90 runs; 100 runs; "},
	"one, too late": {fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedOne, WithinMS: 12_000}, "10 runs; 80 missed after 6; 90 runs; 100 runs; "},
	"skip":          {fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedSkip}, "10 runs; 80 missed after 6; 90 runs; 100 runs; "},
	"all": {
		fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedAll, WithinMS: 60_000},
		"10 runs; 30 missed after 1; 40 runs; 50 runs; 60 runs; 70 runs; 80 runs; 90 runs; 100 runs; ",
	},
}

// Ticks that are due while the tasks have no place in memory are tried again. Once there is place,
// those that are more than 10 s late are missed ones.
func TestTicksThatLackedCapacityRunByTheRuleForMissedOnes(t *testing.T) {
	t.Parallel()
	for what, x := range missedRules {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *sequencer.Config) {
					cfg.MaxTasks, cfg.KeepFor = 1_000, time.Millisecond
				}
				s, _ := c.lead()
				raiseToSchedules(t, s)
				n := everyTenSeconds("tick")
				n.ScheduleRules = x.rules
				mustSet(t, s, n)
				<-time.After(15 * time.Second)
				large := mustSubmit(t, s, spec{key: "large", n: 999}) // 1 has started
				<-time.After(time.Until(simEpoch.Add(93 * time.Second)))
				if got, want := c.decisions(), "10 runs; "; got != want {
					t.Errorf("without place: got %s, want %s", got, want)
				}
				if _, err := s.CancelJob(t.Context(), large, "not needed"); err != nil { // it leaves the memory
					t.Fatal(err)
				}
				<-time.After(time.Until(simEpoch.Add(105 * time.Second)))
				if got := c.decisions(); got != x.want {
					t.Errorf("got %s, want %s", got, x.want)
				}
				c.missedRuns()
			})
		})
	}
}

// How old a missed tick may be is about ticks. One that was decided in time is a job, which waits
// for the run before it however long that takes, also under the next leader.
func TestARunThatWaitsForTheOneBeforeItIsNeverTooLate(t *testing.T) {
	t.Parallel()
	for what, fails := range map[string]bool{"one leader": false, "a new leader": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, end := c.lead()
				raiseToSchedules(t, s)
				w := attachWorker(t, s, "w", "a", 1, hold)
				n := everyTenSeconds("tick")
				n.EveryMS, n.ScheduleRules = 20_000, fsm.ScheduleRules{Overlap: fsm.OverlapWait, Missed: fsm.MissedOne, WithinMS: 12_000}
				mustSet(t, s, n)
				<-time.After(50 * time.Second)
				if fails {
					_ = end()
					s, _ = c.lead()
					w.mu.Lock()
					held := slices.Clone(w.held)
					w.mu.Unlock()
					w = attachWorker(t, s, "w", "a", 1, hold, held...)
				}
				<-time.After(time.Until(simEpoch.Add(75 * time.Second))) // the second run waits for 35 s
				if got, want := c.decisions(), "20 runs; 40 runs; 60 open; "; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				list := c.outcomes()
				first, second := list[0].Job, list[1].Job
				if j := c.job(second); !j.Gated || j.State.Terminal() {
					t.Errorf("the second run does not wait: %+v", j)
				}
				w.mu.Lock()
				w.obeys = true
				w.mu.Unlock()
				if _, err := s.CancelJob(t.Context(), first, "not needed"); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				if j := c.job(second); j.Gated || j.Counts[fsm.Assigned] != 1 {
					t.Errorf("the second run does not start: %+v", j)
				}
				s.Detach(w.id, w)
			})
		})
	}
}

func TestOfManyMissedTicksTheHundredNewestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		n := everyTenSeconds("tick")
		n.Missed = fsm.MissedAll
		mustSet(t, s, n)
		<-time.After(15 * time.Second)
		_ = end()
		<-time.After(time.Until(simEpoch.Add(1521 * time.Second))) // 150 were missed, and 1520 is 1 s late
		c.lead()
		<-time.After(time.Until(simEpoch.Add(1535 * time.Second)))
		runs, text := c.missedRuns(), ""
		for _, x := range c.fires() {
			switch tick := x.TickMS/1000 - simEpoch.Unix(); {
			case !x.isMissed():
				text += fmt.Sprintf("%d runs; ", tick)
			case x.Decision == fsm.TickSkippedMissed:
				text += fmt.Sprintf("%d missed after %d; ", tick, x.Earlier)
			}
		}
		if want := "10 runs; 510 missed after 49; 1520 runs; 1530 runs; "; text != want {
			t.Errorf("got %s, want %s", text, want)
		}
		for i, x := range runs {
			if got, want := x.TickMS/1000-simEpoch.Unix(), int64(520+10*i); got != want {
				t.Fatalf("run %d is for the tick %d, want %d", i, got, want)
			}
		}
		if jobs := c.onceEach(); len(runs) != 100 || jobs != 103 {
			t.Errorf("%d missed ticks run, in %d jobs, want 100 in 103", len(runs), jobs)
		}
	})
}

// The limit of missed runs is one for all schedules, and one with many of them delays no other forever.
func TestMissedTicksOfManySchedulesRunOneByOne(t *testing.T) {
	t.Parallel()
	const schedules = 30
	for rule, each := range map[fsm.MissedRule]int{fsm.MissedOne: 1, fsm.MissedAll: 4} {
		t.Run(fmt.Sprintf("%d each", each), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, end := c.lead()
				raiseToSchedules(t, s)
				for i := range schedules {
					n := everyTenSeconds(fmt.Sprintf("s%d", i))
					n.Missed = rule
					mustSet(t, s, n)
				}
				<-time.After(15 * time.Second)
				_ = end()
				<-time.After(time.Until(simEpoch.Add(61 * time.Second))) // 20 to 50 were missed
				c.lead()
				<-time.After(8 * time.Second)
				count := make(map[fsm.ScheduleID]int)
				runs := c.missedRuns()
				for _, x := range runs {
					count[x.Schedule]++
				}
				for id, n := range count {
					if n != each {
						t.Errorf("%d missed ticks of schedule %d run, want %d", n, id, each)
					}
				}
				if len(count) != schedules {
					t.Errorf("missed ticks of %d schedules run, want %d", len(count), schedules)
				}
				took := runs[len(runs)-1].atMS - runs[0].atMS
				if want := int64(len(runs)-1) * 50; took < want-1 || took > want+20 {
					t.Errorf("%d missed runs took %d ms, want %d", len(runs), took, want)
				}
			})
		})
	}
}

// A leader that takes over after an outage finds that all schedules have missed ticks. Users and
// workers must not wait until it has searched them all, which takes milliseconds for each.
func TestAnEntryDecidesTheMissedTicksOfFewSchedules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var agrees atomic.Bool
		c.config = func(cfg *sequencer.Config) { cfg.ClockAgrees = agrees.Load }
		agrees.Store(true)
		s, end := c.lead()
		raiseToSchedules(t, s)
		const schedules = 100
		for i := range schedules {
			n := everyTenSeconds(fmt.Sprintf("s%d", i))
			n.EveryMS, n.ScheduleRules = 3_600_000, fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedSkip}
			mustSet(t, s, n)
		}
		_ = end()
		<-time.After(time.Until(simEpoch.Add(2 * time.Hour)))
		agrees.Store(false) // until the first comparison of the term
		c.lead()
		<-time.After(11 * time.Second)
		agrees.Store(true)
		<-time.After(200 * time.Millisecond)
		entries := make(map[int64]int)
		for _, x := range c.fires() {
			entries[x.atMS]++
		}
		decided := 0
		for at, n := range entries {
			if decided += n; n > 8 {
				t.Errorf("the entry at %d decides the missed ticks of %d schedules", at, n)
			}
		}
		if decided != schedules {
			t.Errorf("the missed ticks of %d of %d schedules are decided", decided, schedules)
		}
	})
}

// While a missed tick waits for its turn, further ones are missed, and the oldest is not one of the
// hundred newest any more. It is skipped, and the turn is that of the next one.
func TestMissedTicksRunWhileMoreAreMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		for i := range 30 {
			n := everyTenSeconds(fmt.Sprintf("s%d", i))
			n.EveryMS, n.Missed = 1000, fsm.MissedAll
			mustSet(t, s, n)
		}
		_ = end()
		<-time.After(150 * time.Second)
		c.lead()
		<-time.After(30 * time.Second)
		if runs := len(c.missedRuns()); runs < 590 {
			t.Errorf("%d missed ticks run within 30 s, want 20 per second", runs)
		}
	})
}
