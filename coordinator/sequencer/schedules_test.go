package sequencer_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// raiseToSchedules raises the cluster to the level that has schedules.
func raiseToSchedules(tb testing.TB, s *sequencer.Sequencer) {
	tb.Helper()
	if err := s.ChangeLevel(tb.Context(), func(fsm.Level, bool) *fsm.SetLevel { return &fsm.SetLevel{Level: 3} }); err != nil {
		tb.Fatal(err)
	}
}

// everyTenSeconds is a schedule that skips runs that overlap, and whose newest missed tick
// runs.
func everyTenSeconds(name string) sequencer.NewSchedule {
	return sequencer.NewSchedule{
		Submission: spec{key: "set " + name, n: 1, header: &dtaskv1.JobHeader{Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL}}.submission(),
		Name:       name, Recurrence: fsm.Recurrence{EveryMS: 10_000},
		ScheduleRules: fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedOne, WithinMS: 86_400_000}, By: "alice",
	}
}

func mustSet(tb testing.TB, s *sequencer.Sequencer, n sequencer.NewSchedule) *fsm.Schedule {
	tb.Helper()
	x, err := s.SetSchedule(tb.Context(), n)
	if err != nil {
		tb.Fatalf("setting schedule %s: %v", n.Name, err)
	}
	return x
}

// outcomes returns what happened to the ticks of the schedule "tick".
func (c *cluster) outcomes() (list []fsm.ScheduleOutcome) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if x := s.ScheduleByName("", "tick"); x != nil {
			list = x.Outcomes
		}
	})
	return list
}

// decisions returns those of the schedule "tick" as text: the tick in seconds since the begin of virtual time,
// how late it was decided, and the decision.
func (c *cluster) decisions() string {
	text := ""
	for _, o := range c.outcomes() {
		what := map[fsm.Decision]string{fsm.TickRuns: "runs", fsm.TickSkippedOpen: "open", fsm.TickSkippedMissed: "missed"}[o.Decision]
		text += fmt.Sprintf("%d %s", o.TickMS/1000-simEpoch.Unix(), what)
		if o.Earlier > 0 {
			text += fmt.Sprintf(" after %d", o.Earlier)
		}
		text += "; "
	}
	return text
}

// onceEach fails the test if two jobs of the state ran for one tick, or one ran before it.
func (c *cluster) onceEach() (jobs int) {
	c.t.Helper()
	ticks := make(map[int64]fsm.JobID)
	c.machine.Read(func(s *fsm.State, _ uint64) {
		for j := range s.Jobs(0) {
			run := j.Header.GetRun()
			if run == nil || run.GetManual() {
				continue
			}
			jobs++
			if other, twice := ticks[run.GetTickMs()]; twice {
				c.t.Errorf("jobs %d and %d ran for the tick %v", other, j.ID, time.UnixMilli(run.GetTickMs()).UTC())
			}
			ticks[run.GetTickMs()] = j.ID
		}
	})
	return jobs
}

func TestAScheduleFiresAtItsTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		mustSet(t, s, everyTenSeconds("tick"))
		<-time.After(35 * time.Second)
		if got, want := c.decisions(), "10 runs; 20 runs; 30 runs; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		previous := int64(0)
		for _, o := range c.outcomes() {
			run := c.job(o.Job).Header.GetRun()
			if late := o.AtMS - o.TickMS; late < 0 || late > 20 {
				t.Errorf("tick %d was decided %d ms late", o.TickMS, late)
			}
			if run.GetTickMs() != o.TickMS || run.GetPreviousMs() != previous || run.GetSchedule() != "tick" {
				t.Errorf("job %d knows the run %v, want the tick %d after %d", o.Job, run, o.TickMS, previous)
			}
			previous = o.TickMS
		}
	})
}

// A leader ends around a tick: before it, with a fire that is lost, with one that is
// committed although the leader never learns of it, or after it.
func TestATickThatIsDueDuringAFailoverRunsOnce(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		for ms := -30; ms <= 30; ms += 5 {
			t.Run(fmt.Sprintf("lost %v at %d ms", lost, ms), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					s, end := c.lead()
					raiseToSchedules(t, s)
					mustSet(t, s, everyTenSeconds("tick"))
					<-time.After(time.Until(simEpoch.Add(9900 * time.Millisecond)))
					resume := c.log.pause()
					if lost {
						c.log.fail(errors.New("leadership lost"))
					}
					<-time.After(time.Until(simEpoch.Add(10*time.Second + time.Duration(ms)*time.Millisecond)))
					over := make(chan error, 1)
					go func() { over <- end() }()
					<-time.After(time.Second)
					resume()
					<-over
					c.log.fail(nil)
					c.lead()
					<-time.After(time.Until(simEpoch.Add(25 * time.Second)))
					if got, want := c.decisions(), "10 runs; 20 runs; "; got != want || c.onceEach() != 2 {
						t.Errorf("got %s, want %s", got, want)
					}
				})
			})
		}
	}
}

func TestAClockThatIsSetFiresNoTickTwiceAndNoneEarly(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 7 * time.Second, -7 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, clock := newCluster(t), new(wallClock)
				var agrees atomic.Bool
				agrees.Store(true)
				c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees = clock.now, agrees.Load }
				s, end := c.lead()
				raiseToSchedules(t, s)
				mustSet(t, s, everyTenSeconds("tick"))
				<-time.After(25 * time.Second)
				before := c.decisions()
				clock.add(step)
				agrees.Store(step.Abs() < 10*time.Second) // larger steps are noticed
				<-time.After(5 * time.Second)
				if step.Abs() >= 10*time.Second && c.decisions() != before {
					t.Errorf("fired while the clock is in doubt: %s", c.decisions())
				}
				_ = end()
				clock.add(-step)
				agrees.Store(true)
				c.lead()
				<-time.After(time.Until(simEpoch.Add(65 * time.Second)))
				if got, want := c.decisions(), "10 runs; 20 runs; 30 runs; 40 runs; 50 runs; 60 runs; "; got != want || c.onceEach() != 6 {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		})
	}
}

// The ticks until the time at which a schedule is set don't fire: set by a clock that is a year
// ahead, it would not fire for a year.
func TestNoScheduleIsSetByAClockThatIsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		var agrees atomic.Bool
		agrees.Store(true)
		c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees, cfg.InFlight = clock.now, agrees.Load, 1 }
		s, _ := c.lead()
		raiseToSchedules(t, s)
		resume := c.log.pause()
		go func() { _, _ = s.Submit(t.Context(), spec{key: "k", n: 1}.submission()) }()
		synctest.Wait()
		set := make(chan error, 1)
		go func() {
			_, err := s.SetSchedule(t.Context(), everyTenSeconds("tick"))
			set <- err
		}()
		synctest.Wait() // it waits until the entry before is committed
		clock.add(365 * 24 * time.Hour)
		agrees.Store(false)
		resume()
		if _, ok := errors.AsType[*sequencer.BusyError](<-set); !ok {
			t.Error("the schedule was set")
		}
		clock.add(-365 * 24 * time.Hour)
		agrees.Store(true)
		mustSet(t, s, everyTenSeconds("tick"))
		<-time.After(time.Until(simEpoch.Add(15 * time.Second)))
		if got, want := c.decisions(), "10 runs; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestMissedTicksRunByTheirRule(t *testing.T) {
	t.Parallel()
	for what, x := range missedRules {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, end := c.lead()
				raiseToSchedules(t, s)
				n := everyTenSeconds("tick")
				n.ScheduleRules = x.rules
				mustSet(t, s, n)
				<-time.After(15 * time.Second)
				_ = end()
				<-time.After(time.Until(simEpoch.Add(94 * time.Second))) // 90 is 4 s late: on time
				c.lead()
				<-time.After(time.Until(simEpoch.Add(105 * time.Second)))
				if got := c.decisions(); got != x.want {
					t.Errorf("got %s, want %s", got, x.want)
				}
			})
		})
	}
}

func TestRunsOverlapByTheirRule(t *testing.T) {
	t.Parallel()
	for rule, x := range map[fsm.Overlap]struct {
		want string
		open int // jobs that have not ended
	}{
		fsm.OverlapSkip:    {"10 runs; 20 open; 30 open; ", 1},
		fsm.OverlapWait:    {"10 runs; 20 runs; 30 open; ", 2},
		fsm.OverlapWaitAll: {"10 runs; 20 runs; 30 runs; ", 3},
		fsm.OverlapReplace: {"10 runs; 20 runs; 30 runs; ", 1},
		fsm.OverlapAllow:   {"10 runs; 20 runs; 30 runs; ", 3},
	} {
		t.Run(fmt.Sprint(rule), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				raiseToSchedules(t, s)
				w := attachWorker(t, s, "w", "a", 4, hold)
				w.obeys = true
				n := everyTenSeconds("tick")
				n.Overlap = rule
				mustSet(t, s, n)
				<-time.After(35 * time.Second)
				if got := c.decisions(); got != x.want {
					t.Errorf("got %s, want %s", got, x.want)
				}
				open, running := 0, 0
				c.machine.Read(func(s *fsm.State, _ uint64) {
					for j := range s.Jobs(0) {
						if !j.State.Terminal() {
							open++
						}
						running += int(j.Counts[fsm.Assigned])
					}
				})
				if open != x.open || rule != fsm.OverlapAllow && running != 1 {
					t.Errorf("%d runs are open and %d tasks run, want %d open runs, and one running", open, running, x.open)
				}
				s.Detach(w.id, w)
			})
		})
	}
}

// The time in which a schedule is paused is not missed.
func TestAPausedScheduleDoesNotFire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		x := mustSet(t, s, everyTenSeconds("tick"))
		<-time.After(15 * time.Second)
		if got, err := s.PauseSchedule(t.Context(), x.ID, "new disk", "bob"); err != nil || !got.IsPaused() {
			t.Fatal(got, err)
		}
		<-time.After(20 * time.Second)
		_ = end()
		s, _ = c.lead()
		<-time.After(20 * time.Second)
		if got, err := s.ResumeSchedule(t.Context(), x.ID); err != nil || got.IsPaused() {
			t.Fatal(got, err)
		}
		<-time.After(10 * time.Second)
		if got, want := c.decisions(), "10 runs; 60 runs; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := s.DeleteSchedule(t.Context(), x.ID, 0); err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Second)
		if n := c.onceEach(); n != 2 {
			t.Errorf("%d jobs ran, want 2", n)
		}
		_, err := s.PauseSchedule(t.Context(), x.ID, "", "bob")
		wantRejected(t, "pausing a deleted schedule", err, fsm.ScheduleNotFound)
	})
}

func TestAScheduleOfARevokedIdentityDoesNotFire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		id, err := s.CreateIdentity(t.Context(), sequencer.NewIdentity{
			Name: "alice", Grant: fsm.Grant{Role: fsm.RoleSubmitter}, Credential: token(1, 0), CreatedBy: "root", Key: "k",
		})
		if err != nil {
			t.Fatal(err)
		}
		n := everyTenSeconds("tick")
		n.Owner = id
		mustSet(t, s, n)
		<-time.After(15 * time.Second)
		if err := s.RevokeIdentity(t.Context(), "root", id); err != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Second)
		_ = end()
		s, _ = c.lead()
		<-time.After(20 * time.Second)
		if got, want := c.decisions(), "10 runs; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		_, err = s.SetSchedule(t.Context(), n)
		wantRejected(t, "setting a schedule for a revoked identity", err, fsm.IdentityRevoked)
	})
}

func TestARepeatedRunByHandIsTheSameRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		x := mustSet(t, s, everyTenSeconds("tick"))
		run := sequencer.ScheduleRun{Schedule: x.ID, Key: "now", Digest: [16]byte{1}}
		first, err := s.RunSchedule(t.Context(), run)
		if err != nil || c.job(first.ID).Header.GetRun().GetSchedule() != "tick" {
			t.Fatal(first, err)
		}
		again, err := s.RunSchedule(t.Context(), run)
		if err != nil || again.ID != first.ID || !again.Existed {
			t.Errorf("got %+v, %v, want job %d", again, err, first.ID)
		}
		run.Digest = [16]byte{2}
		_, err = s.RunSchedule(t.Context(), run)
		wantRejected(t, "another request with the key", err, fsm.KeyConflict)
	})
}

// A term sets the timers of its schedules some at a time. One that a user changes or deletes
// meanwhile is set by that.
func TestEveryScheduleFiresInANewTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		const schedules = 300
		last := fsm.ScheduleID(0)
		for i := range schedules {
			n := everyTenSeconds(fmt.Sprintf("s%d", i))
			n.EveryMS = 3_600_000
			last = mustSet(t, s, n).ID
		}
		_ = end()
		s, _ = c.lead()
		if err := s.DeleteSchedule(t.Context(), last, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PauseSchedule(t.Context(), last-1, "", "alice"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Until(simEpoch.Add(time.Hour + time.Second)))
		c.machine.Read(func(s *fsm.State, _ uint64) {
			for x := range s.Schedules() {
				if want := x.ID != last-1; (len(x.Outcomes) == 1) != want {
					t.Errorf("schedule %s has the outcomes %v, want one: %v", x.Name, x.Outcomes, want)
				}
			}
		})
	})
}

func TestTenThousandSchedulesFireInOneSecond(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		raiseToSchedules(t, s)
		const schedules = 10_000
		for i := range schedules {
			n := everyTenSeconds(fmt.Sprintf("s%d", i))
			n.EveryMS = 3_600_000
			mustSet(t, s, n)
		}
		_ = end()
		<-time.After(time.Until(simEpoch.Add(time.Hour - time.Minute)))
		c.lead()
		<-time.After(time.Until(simEpoch.Add(time.Hour + time.Second)))
		fired := 0
		c.machine.Read(func(s *fsm.State, _ uint64) {
			for x := range s.Schedules() {
				fired += len(x.Outcomes)
			}
		})
		if fired != schedules {
			t.Errorf("%d of %d schedules fired", fired, schedules)
		}
	})
}

// oftenLarge is everyTenSeconds for a job of n tasks.
func oftenLarge(name string, n uint32) sequencer.NewSchedule {
	x := everyTenSeconds(name)
	x.Submission = spec{key: "set " + name, n: n, header: &dtaskv1.JobHeader{Name: name, Priority: dtaskv1.Priority_PRIORITY_NORMAL}}.submission()
	return x
}

// tasks returns the number of tasks in the state.
func (c *cluster) tasks() (n uint32) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		for j := range s.Jobs(0) {
			n += j.Total
		}
	})
	return n
}

// The runs that one entry starts are not in memory before it is complete.
func TestSchedulesThatAreDueTogetherKeepTheLimitOfTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.MaxTasks = 25 }
		s, _ := c.lead()
		raiseToSchedules(t, s)
		for i := range 4 {
			mustSet(t, s, oftenLarge(fmt.Sprintf("s%d", i), 10))
		}
		<-time.After(15 * time.Second)
		if n := c.tasks(); n != 20 {
			t.Errorf("%d tasks are in memory, want 20 of at most 25", n)
		}
		_, err := s.RunSchedule(t.Context(), sequencer.ScheduleRun{Schedule: 1, Key: "now"})
		if _, ok := errors.AsType[*sequencer.BusyError](err); !ok {
			t.Errorf("a run by hand: got %v, want a busy error", err)
		}
	})
}

// A fire takes some 20 bytes of an entry, however long it takes to apply.
func TestAnEntryStartsFewLargeRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		const schedules, tasks = 5, 30_000
		for i := range schedules {
			mustSet(t, s, oftenLarge(fmt.Sprintf("s%d", i), tasks))
		}
		<-time.After(11 * time.Second)
		if n := c.tasks(); n != schedules*tasks {
			t.Errorf("%d tasks have started, want %d", n, schedules*tasks)
		}
		c.log.mu.Lock()
		defer c.log.mu.Unlock()
		for _, data := range c.log.entries {
			e, err := fsm.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			fires := 0
			for _, op := range e.Ops {
				if _, ok := op.(*fsm.Fire); ok {
					fires++
				}
			}
			if fires > 3 { // the third one exceeds 65,536 tasks
				t.Errorf("an entry starts %d runs of %d tasks", fires, tasks)
			}
		}
	})
}

// A schedule is on time beside one that is due at the same ticks and starts 100,000 tasks, and
// also if those have no place in memory.
func TestALargeScheduleDelaysNoOther(t *testing.T) {
	t.Parallel()
	const large = 100_000
	for limit, want := range map[uint64]uint32{1_000_000: 2*large + 2, 150_000: large + 2, 50_000: 2} {
		t.Run(fmt.Sprintf("at most %d tasks", limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, end := c.lead()
				raiseToSchedules(t, s)
				mustSet(t, s, oftenLarge("large", large))
				mustSet(t, s, everyTenSeconds("tick"))
				_ = end()
				c.config = func(cfg *sequencer.Config) { cfg.MaxTasks = limit }
				c.lead()
				<-time.After(25 * time.Second)
				if got, want := c.decisions(), "10 runs; 20 runs; "; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				for _, o := range c.outcomes() {
					if late := o.AtMS - o.TickMS; late < 0 || late > 20 {
						t.Errorf("the tick %d was decided %d ms late", o.TickMS, late)
					}
				}
				if n := c.tasks(); n != want {
					t.Errorf("%d tasks have started, want %d", n, want)
				}
			})
		})
	}
}

// Timers can't be removed, and those of a far tick are set again each hour.
func TestAScheduleThatChangesOftenHasOneTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		n := everyTenSeconds("tick")
		n.EveryMS = 365 * 86_400_000
		x := mustSet(t, s, n)
		for range 20 {
			if _, err := s.PauseSchedule(t.Context(), x.ID, "", "alice"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.ResumeSchedule(t.Context(), x.ID); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
		<-time.After(time.Hour)
		if n := s.TickTimers(t.Context()); n != 1 {
			t.Errorf("%d timers are set for the next tick, want 1", n)
		}
	})
}

func TestDecisionsAboutTicksAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, totals := newCluster(t), sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, end := c.lead()
		raiseToSchedules(t, s)
		n := everyTenSeconds("tick")
		n.Overlap = fsm.OverlapSkip
		mustSet(t, s, n)
		<-time.After(25 * time.Second) // no worker ends the first run
		_ = end()
		<-time.After(time.Until(simEpoch.Add(94 * time.Second)))
		c.lead()
		<-time.After(time.Until(simEpoch.Add(105 * time.Second)))
		if got, want := c.decisions(), "10 runs; 20 open; 80 open after 5; 90 open; 100 open; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		delays := totals.FireDelay.Counts()
		if runs, skipped, missed := totals.ScheduledRuns.Load(), totals.TicksSkipped.Load(), totals.TicksMissed.Load(); runs != 1 || skipped != 4 || missed != 5 || delays.N != 1 {
			t.Errorf("counted %d runs, %d skipped and %d missed ticks, %d delays", runs, skipped, missed, delays.N)
		}
	})
}
