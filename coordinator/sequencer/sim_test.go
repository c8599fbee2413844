package sequencer_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// sim is one simulation. One goroutine, the driver, takes the next event from a
// heap, advances the virtual clock to it, and executes it.
//
//	clients ──┐                      ┌── replicas that lag, crash, are restored
//	workers ──┼── terms (sequencer) ─┴── one log that loses, delays, commits late
//	faults ───┘   the leader and zombies
//
// Everything random comes from one generator, in the order of events.
type sim struct {
	t    *testing.T
	seed uint64
	opts simOptions
	rng  *rand.Rand
	free bool // terms have their own goroutines

	queue  simHeap
	order  uint64
	clock  *time.Timer
	events int64
	trace  uint64 // digest of all events
	losses int    // of leadership
	fired  map[string]int

	log     *simLog
	terms   []*simTerm // not ended
	leader  *simTerm   // one of terms; nil: none
	number  uint64     // of the last term
	workers []*simWorker
	jobs    []*simJob
	plans   []*simSchedule
	queues  *simQueues  // nil: nobody sets queues
	limits  *simLimits  // nil: nobody sets limits
	clocks  *simClocks  // nil: nobody sets wall clocks
	origins *simOrigins // nil: jobs have no owners, and are in the queue default at first
	surplus uint32      // most attempts that a worker may hold because it had more slots before
	calls   []*simCall
	stirred bool // calls may have been answered
	asking  sync.WaitGroup

	mu   sync.Mutex // guards what follows, for terms with goroutines
	sent []simSent

	lowSpace atomic.Bool
	calm     bool // faults have ended
	rested   bool
	webhooks map[string]bool // by key: jobs with a webhook
	simLedger
}

// simEpoch is the start of virtual time.
var simEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newSim(t *testing.T, seed uint64, free bool) *sim {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &sim{t: t, seed: seed, rng: rng, opts: simOptionsOf(rng), free: free, trace: seed, fired: map[string]int{}, webhooks: map[string]bool{}}
	c.clock = time.NewTimer(0)
	<-c.clock.C
	c.log = newSimLog(c)
	c.simLedger = newSimLedger(c)
	if seed%3 == 0 { // not drawn: all other seeds give the runs that they gave without limits
		c.opts.Storm += 20 * time.Second
		if seed%2 == 0 { // a new leader lets tasks with limits start late, or not before the next one
			c.opts.FaultEvery *= 8
		}
		c.limits = newSimLimits(c)
	}
	for i := range c.opts.Workers + c.opts.Twins {
		c.workers = append(c.workers, newSimWorker(c, i%c.opts.Workers, i >= c.opts.Workers))
	}
	for i := range c.opts.Jobs {
		c.jobs = append(c.jobs, newSimJob(c, i))
	}
	for i := range c.opts.Schedules {
		c.plans = append(c.plans, newSimSchedule(c, i))
	}
	if hasOrigins(seed) {
		c.opts.Queues, c.origins = true, newSimOrigins(c)
	}
	if c.opts.Queues {
		c.queues = newSimQueues(c)
	}
	if seed%2 == 1 {
		newSimExplains(c)
	}
	if hasClocks(seed) {
		c.clocks = newSimClocks(c)
	}
	if hasPlans(seed) {
		newSimPlanner(c)
	}
	if hasNewConfigs(seed) {
		newSimConfigs(c)
	}
	return c
}

func (c *sim) chance(percent int) bool { return c.rng.IntN(100) < percent }

func (c *sim) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d) + 1)) }

// after schedules an event.
func (c *sim) after(d time.Duration, do func()) { c.at(time.Now().Add(d), do) }

func (c *sim) at(when time.Time, do func()) {
	c.order++
	c.queue.push(simEvent{when, c.order, do})
}

// note adds an event to the count and to the trace.
func (c *sim) note(kind string, a, b uint64) {
	c.events++
	h := c.trace
	for i := range len(kind) {
		h = (h ^ uint64(kind[i])) * 0x100000001b3
	}
	for _, x := range [3]uint64{uint64(time.Since(simEpoch)), a, b} {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	c.trace = h
	if *simTrace {
		fmt.Fprintf(os.Stderr, "%12v %-16s %d %d\n", time.Since(simEpoch), kind, a, b)
	}
}

func (c *sim) fail(format string, args ...any) {
	c.t.Helper()
	test := "TestNothingAcknowledgedIsLostWhateverHappens"
	if c.free {
		test = "TestNothingAcknowledgedIsLostWithTheGoroutinesOfATerm"
	}
	c.t.Errorf("seed %d, %v into the simulation, event %d, term %d: %s\noptions: %+v\nreplay: go test ./coordinator/sequencer -count=1 -run '%s$' -sim.seed=%d",
		c.seed, time.Since(simEpoch), c.events, c.number, fmt.Sprintf(format, args...), c.opts, test, c.seed)
}

// run simulates faults, then calm until everything has ended.
func (c *sim) run() {
	c.elect()
	c.after(c.opts.Storm, c.calmDown)
	c.after(c.opts.FaultEvery, c.fault)
	for len(c.queue) > 0 && !c.rested && !c.t.Failed() {
		e := c.queue.pop()
		if d := time.Until(e.at); d > 0 {
			c.clock.Reset(d)
			<-c.clock.C
		}
		e.do()
		c.settle()
	}
	if !c.t.Failed() {
		c.finalChecks()
	}
	c.tearDown()
}

// settle lets all parts do everything that they can do now.
func (c *sim) settle() {
	for again := true; again; {
		again = false
		for i := 0; i < len(c.terms); i++ {
			t := c.terms[i]
			if t.step() {
				again, c.stirred = true, true
			}
			if t.over {
				c.terms = append(c.terms[:i:i], c.terms[i+1:]...)
				i--
			}
		}
		c.post()
		c.wake()
		again = c.answers() || again
	}
	for _, t := range c.terms {
		t.plan()
	}
}

// calmDown ends all faults and waits for the end of all work.
func (c *sim) calmDown() {
	c.note("calm", 0, 0)
	c.calm = true
	c.lowSpace.Store(false)
	for _, w := range c.workers {
		w.secondEnds()
	}
	c.undrainAll()
	c.restoreConfigs()
	if c.clocks != nil {
		c.clocks.rest()
	}
	const patience = 20 * time.Minute // without the end of a job
	limit, fewest := time.Now().Add(patience), math.MaxInt
	var look func()
	look = func() {
		// A hundred runs of a schedule may wait for each other, and each of them for a rate.
		if n := c.openJobs(); c.schedulesGone() && n < fewest {
			limit, fewest = time.Now().Add(patience), n
		}
		switch {
		case c.quiet():
			c.rested = true
		case time.Now().After(limit):
			c.fail("work does not end: %s", c.describe())
		default:
			c.after(500*time.Millisecond, look)
		}
	}
	look()
}

// tearDown ends everything that was started.
func (c *sim) tearDown() {
	for _, x := range c.calls {
		x.cancel()
	}
	for _, t := range c.terms {
		t.end()
	}
	c.asking.Wait()
	c.clock.Stop()
}

// simCall is a request to a term in progress.
type simCall struct {
	term   *simTerm
	cancel context.CancelFunc
	done   chan error // size 1
	then   func(error)
}

// call sends a request to a term. The driver calls then with the answer, or
// with a context error after the limit.
func (c *sim) call(t *simTerm, limit time.Duration, ask func(context.Context, *sequencer.Sequencer) error, then func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	x := &simCall{term: t, cancel: cancel, done: make(chan error, 1), then: then}
	c.calls = append(c.calls, x)
	c.asking.Go(func() { x.done <- ask(ctx, t.seq) })
	synctest.Wait()
	c.after(limit, func() {
		cancel()
		c.stirred = true
	})
}

// hangUp closes the connections to a term whose process is gone.
func (c *sim) hangUp(t *simTerm) {
	for _, x := range c.calls {
		if x.term == t {
			x.cancel()
			c.stirred = true
		}
	}
	for _, w := range c.workers {
		if x := w.session; x != nil && x.term == t {
			c.after(c.upTo(c.opts.Lag), func() {
				if w.session == x {
					w.disconnect(0)
				}
			})
		}
	}
}

// answers handles the answers that have arrived.
func (c *sim) answers() (some bool) {
	if !c.stirred && !c.free || len(c.calls) == 0 {
		return false
	}
	c.stirred = false
	synctest.Wait()
	waiting := c.calls
	c.calls = nil
	for _, x := range waiting {
		select {
		case err := <-x.done:
			some = true
			c.note("answer", 0, 0)
			x.cancel()
			x.then(err)
		default:
			c.calls = append(c.calls, x)
		}
	}
	return some
}

// quiet reports whether everything has ended and no attempt is held.
func (c *sim) quiet() bool {
	if c.leader == nil || len(c.terms) > 1 || len(c.calls) > 0 {
		return false
	}
	for _, j := range c.jobs {
		if !j.acked || !c.jobEnded(j.id) {
			return false
		}
	}
	for _, w := range c.workers {
		if !w.gone && (w.session == nil || len(w.held) > 0 || len(w.outbox) > 0) {
			return false
		}
	}
	if !c.schedulesGone() {
		return false
	}
	if c.queues != nil && len(c.queues.calm) < len(simQueueNames) {
		return false
	}
	if c.limits != nil && !c.limits.calm {
		return false
	}
	notified := false
	c.log.truth.Read(func(s *fsm.State, _ uint64) { notified = s.NotificationCount() == 0 })
	return notified && c.openJobs() == 0 && c.leader.holdsNothing()
}

// schedulesGone reports whether all schedules were deleted after the faults.
func (c *sim) schedulesGone() bool {
	return !slices.ContainsFunc(c.plans, func(x *simSchedule) bool { return !x.gone })
}

// openJobs returns the number of jobs that have not ended, also of the runs of schedules.
func (c *sim) openJobs() (n int) {
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		for job := range s.Jobs(0) {
			if !job.State.Terminal() {
				n++
			}
		}
	})
	return n
}

func (c *sim) describe() string {
	text := fmt.Sprintf("leader %v, %d terms, %d calls", c.leader != nil, len(c.terms), len(c.calls))
	for _, w := range c.workers {
		text += fmt.Sprintf("\n%s (%d): session %v, gone %v, %d held, %d unacknowledged", w.name, w.id, w.session != nil, w.gone, len(w.held), len(w.outbox))
	}
	for _, j := range c.jobs {
		if !j.acked {
			text += fmt.Sprintf("\njob %d is not acknowledged", j.id)
		}
	}
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		text += fmt.Sprintf("\n%d notifications", s.NotificationCount())
		for job := range s.Jobs(0) {
			if job.State.Terminal() {
				continue
			}
			text += fmt.Sprintf("\njob %d: %v", job.ID, job.State)
			for i := range job.Total {
				if v, _ := s.Task(fsm.TaskRef{Job: job.ID, Index: i}); !v.State.Terminal() {
					text += fmt.Sprintf("\n  %+v %v", v, s.Policy(fsm.TaskRef{Job: job.ID, Index: i}))
				}
			}
		}
	})
	return text
}
