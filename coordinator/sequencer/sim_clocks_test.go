package sequencer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simClocks sets the wall clocks of replicas while the others are right: at most one is wrong at
// a time, so that a majority is right. It draws from a generator of its own.
type simClocks struct {
	c   *sim
	rng *rand.Rand

	mu    sync.Mutex    // guards what follows, for terms with goroutines
	wrong int           // replica whose clock is set; -1: none
	ahead time.Duration // how far it was set ahead, at since
	rate  int64         // how much faster it runs since, in thousandths
	since time.Time
}

// hasClocks reports whether wall clocks are set in the run of a seed: in every fifth one. All other
// seeds give the runs that they gave before, and so do the first ones, by which planted bugs are
// caught.
func hasClocks(seed uint64) bool { return seed > 1000 && seed%5 == 4 }

// firstClockSeed is the first seed in whose run wall clocks are set, and each fifth one follows.
const firstClockSeed = 1004

// TestNothingIsEarlyOrExpiresWhileAClockIsWrong simulates runs in which the wall clock of one
// replica at a time is wrong, mostly that of the leader.
func TestNothingIsEarlyOrExpiresWhileAClockIsWrong(t *testing.T) {
	t.Parallel()
	runs := uint64(40)
	if testing.Short() {
		runs = 5
	}
	for n := range runs {
		synctest.Test(t, func(t *testing.T) {
			c := newSim(t, firstClockSeed+5*n, false)
			c.run()
			if len(c.fired) == 0 && !c.opts.Calm {
				t.Errorf("seed %d has no faults", c.seed)
			}
		})
	}
}

// simClockFaults are what happens to a clock; kinds are those of nemesis. The last step is one
// of which the others don't notice that it is wrong.
var simClockFaults = []struct {
	kind  string
	steps []time.Duration // forward or back, drawn again after each pause
	rates []int64
	again bool
}{
	{kind: "F52", steps: []time.Duration{time.Hour, 24 * time.Hour, 24*time.Hour + time.Minute, 12 * time.Second, 8 * time.Second}},
	{kind: "F53", rates: []int64{-50, 50, 1500, 5000, -3000}},
	{kind: "F54", rates: []int64{-1000}},
	{kind: "F55", steps: []time.Duration{time.Second, 5 * time.Second, 9 * time.Second, 15 * time.Second}, again: true},
}

func newSimClocks(c *sim) *simClocks {
	x := &simClocks{c: c, rng: rand.New(rand.NewPCG(c.seed, 4)), wrong: -1}
	c.after(x.upTo(2*time.Second), x.turn)
	return x
}

func (x *simClocks) upTo(d time.Duration) time.Duration {
	return time.Duration(x.rng.Int64N(int64(d) + 1))
}

// now returns the time by the wall clock of a replica.
func (x *simClocks) now(replica int) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	at := now.Round(0).Add(x.c.opts.Skew[replica])
	if replica == x.wrong {
		at = at.Add(x.ahead + now.Sub(x.since)/1000*time.Duration(x.rate))
	}
	return at
}

// set sets the clock of a replica; -1 corrects it.
func (x *simClocks) set(replica int, ahead time.Duration, rate int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrong, x.ahead, x.rate, x.since = replica, ahead, rate, time.Now()
}

// turn makes a clock wrong, mostly that of the leader, and corrects it later.
func (x *simClocks) turn() {
	c := x.c
	if c.calm || c.opts.Calm {
		return
	}
	who := x.rng.IntN(len(c.log.replicas))
	if c.leader != nil && x.rng.IntN(4) > 0 {
		who = c.leader.replica.number
	}
	f := simClockFaults[x.rng.IntN(len(simClockFaults))]
	c.fired[f.kind]++
	until := time.Now().Add(500*time.Millisecond + x.upTo(7*time.Second))
	var hold func()
	hold = func() {
		if c.calm || !time.Now().Before(until) {
			c.note("clock-right", uint64(who), 0)
			x.set(-1, 0, 0)
			c.after(x.upTo(2*time.Second), x.turn)
			return
		}
		x.wronger(who, f.steps, f.rates)
		pause := time.Until(until)
		if f.again {
			pause = min(pause, 100*time.Millisecond+x.upTo(time.Second))
		}
		c.after(pause, hold)
	}
	hold()
}

// wronger sets the clock of a replica to one of the steps, forward or back, or to one of the rates.
func (x *simClocks) wronger(who int, steps []time.Duration, rates []int64) {
	step, rate := time.Duration(0), int64(0)
	if len(steps) > 0 {
		step = steps[x.rng.IntN(len(steps))] * time.Duration(1-2*x.rng.IntN(2))
	}
	if len(rates) > 0 {
		rate = rates[x.rng.IntN(len(rates))]
	}
	x.c.note("clock-wrong", uint64(who), uint64(step)+uint64(rate))
	x.set(who, step, rate)
}

// rest cancels, again and again, the jobs that would start only much later: a leader with a wrong
// clock set the time, or its timer.
func (x *simClocks) rest() {
	c := x.c
	c.after(time.Second, x.rest)
	now := time.Now()
	var jobs []fsm.JobID
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		for job := range s.Jobs(0) {
			if !job.State.Terminal() && (job.Gated && isLate(job.StartMS(), now) || hasLateTask(s, &job, now)) {
				jobs = append(jobs, job.ID)
			}
		}
	})
	for _, id := range jobs {
		if t := c.leader; t != nil {
			c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
				_, err := s.CancelJobNow(ctx, id, "starts too late")
				return err
			}, func(error) {})
		}
	}
}

// isLate reports whether a start time is far ahead, or has passed long ago.
func isLate(startMS int64, now time.Time) bool {
	return startMS != 0 && time.UnixMilli(startMS).Sub(now).Abs() > time.Minute
}

// hasLateTask reports whether a task of a job waits for such a time.
func hasLateTask(s *fsm.State, job *fsm.Job, now time.Time) bool {
	for i := range job.Total {
		if t, ok := s.Task(fsm.TaskRef{Job: job.ID, Index: i}); ok && t.State == fsm.Scheduled && isLate(t.DueMS, now) {
			return true
		}
	}
	return false
}

const (
	// simMaxSkew and simCompareInterval are those of the coordinator's duty that compares clocks.
	simMaxSkew         = 10 * time.Second
	simCompareInterval = 2 * time.Second
	// simRightSkew bounds how far a clock is from the true time that no fault has set.
	simRightSkew = 2 * time.Second
)

// simMonitor is what a leader knows of its wall clock, as the coordinator's duty finds it.
type simMonitor struct {
	x *simClocks
	t *simTerm

	mu    sync.Mutex    // guards what follows, for terms with goroutines
	known bool          // the clock agreed with a majority
	wall  time.Time     // then
	at    time.Time     // then, by the monotonic clock
	skew  time.Duration // from the nearer one of the others, then
}

// watch returns the monitor of a term.
func (x *simClocks) watch(t *simTerm) *simMonitor {
	m := &simMonitor{x: x, t: t}
	x.c.after(x.upTo(200*time.Millisecond), m.compare)
	return m
}

// compare compares the clock with those of the other replicas.
func (m *simMonitor) compare() {
	switch {
	case m.t.over:
		return
	case m.t.isFrozen():
		m.x.c.at(m.t.frozen, m.compare)
		return
	}
	wall, skew := m.x.now(m.t.replica.number), 365*24*time.Hour
	for r := range m.x.c.log.replicas {
		if r != m.t.replica.number {
			skew = min(skew, m.x.now(r).Sub(wall).Abs())
		}
	}
	m.mu.Lock()
	m.known, m.wall, m.at, m.skew = skew <= simMaxSkew, wall, time.Now(), skew
	m.mu.Unlock()
	m.x.c.after(simCompareInterval, m.compare)
}

// agrees reports whether the wall clock is right as far as is known.
func (m *simMonitor) agrees() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known && m.skew+(m.x.now(m.t.replica.number).Sub(m.wall)-time.Since(m.at)).Abs() <= simMaxSkew
}

// notEarly checks that what waits for a time of day does not happen earlier, by the true time,
// than a clock may be ahead that agrees with the others. began is when the entry was decided.
func (x *simClocks) notEarly(what string, dueMS int64, began time.Time) {
	if x == nil || began.IsZero() {
		return
	}
	if early := time.UnixMilli(dueMS).Sub(began); early > simMaxSkew+simRightSkew+time.Millisecond {
		x.c.fail("%s happened %v early", what, early)
	}
}

// nothingExpires checks that an entry of a leader with a wrong clock removes nothing by age.
func (x *simClocks) nothingExpires(s *fsm.State, e fsm.Entry, began time.Time) {
	if x == nil || began.IsZero() || time.UnixMilli(e.NowMS).Sub(began).Abs() <= simMaxSkew+simRightSkew+time.Millisecond {
		return
	}
	for _, op := range e.Ops {
		switch op := op.(type) {
		case *fsm.ForgetKeys, *fsm.ForgetResults, *fsm.ForgetWorkers, *fsm.ForgetIdentities, *fsm.ExpireHistory:
			x.c.fail("%T by a clock that is wrong by %v", op, time.UnixMilli(e.NowMS).Sub(began))
		case *fsm.Archive:
			if ended := endedJobs(s); len(e.Ops) == 1 && ended-len(op.Items) < x.c.opts.KeepJobs {
				x.c.fail("%d of %d ended jobs left the state by a clock that is wrong by %v, limit %d",
					len(op.Items), ended, time.UnixMilli(e.NowMS).Sub(began), x.c.opts.KeepJobs)
			}
		}
	}
}

func endedJobs(s *fsm.State) (n int) {
	for job := range s.Jobs(0) {
		if job.State.Terminal() {
			n++
		}
	}
	return n
}
