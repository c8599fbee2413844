package sequencer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "simulate this seed only")
	chaosRuns = flag.Uint64("chaos.runs", 300, "how many seeds are simulated")
)

// TestNothingAcknowledgedIsLostWhateverHappens simulates leaders, workers and
// clients with all that can befall them, and looks at every entry and at the
// soft state whether what is promised holds.
func TestNothingAcknowledgedIsLostWhateverHappens(t *testing.T) {
	t.Parallel()
	first, runs := uint64(1), *chaosRuns
	if testing.Short() {
		runs = min(runs, 30)
	}
	if *chaosSeed > 0 {
		first, runs = *chaosSeed, 1
	}
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed).run() })
		})
	}
}

// chaos is one simulation. One goroutine, the driver, decides all, and waits
// after each step until everybody else has nothing left to do.
type chaos struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	machine *fsm.Machine
	log     *chaosLog
	workers []*chaosWorker
	jobs    []*chaosJob
	timed   []chaosTimed
	running sync.WaitGroup

	seq  *sequencer.Sequencer // nil: nobody leads
	stop context.CancelFunc
	over chan error
	term uint64
	skew [3]time.Duration // of the replicas' wall clocks
	next time.Time        // while nobody leads: when the next does

	calm bool // no more faults
	ledger
}

// chaosTimed is something that happens at a moment, or earlier.
type chaosTimed struct {
	at    time.Time
	early func() bool
	do    func()
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), machine: fsm.NewMachine(fsm.Compact{})}
	c.ledger.c = c
	c.log = &chaosLog{machine: c.machine, observe: c.ledger.observe}
	for i := range c.skew {
		c.skew[i] = c.upTo(4*time.Second) - 2*time.Second
	}
	for i := range 2 + c.rng.IntN(4) {
		c.workers = append(c.workers, &chaosWorker{
			c: c, name: fmt.Sprintf("w%d", i), slots: 1 + uint32(c.rng.IntN(5)), zone: i == 0 || c.chance(30),
			held: make(map[fsm.AttemptRef]*chaosAttempt), first: 1,
		})
	}
	for i := range 2 + c.rng.IntN(8) {
		c.jobs = append(c.jobs, &chaosJob{sub: c.submission(i), from: time.Now().Add(c.upTo(30 * time.Second))})
	}
	return c
}

func (c *chaos) chance(percent int) bool { return c.rng.IntN(100) < percent }

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%v into the simulation, term %d: %s\nreplay: go test ./coordinator/sequencer -run 'TestNothingAcknowledged' -chaos.seed=%d",
		time.Since(chaosEpoch), c.term, fmt.Sprintf(format, args...), c.seed)
}

// chaosEpoch is when virtual time begins.
var chaosEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// later does something after a while, or as soon as early holds.
func (c *chaos) later(d time.Duration, early func() bool, do func()) {
	c.timed = append(c.timed, chaosTimed{time.Now().Add(d), early, do})
}

func (c *chaos) run() {
	until := time.Now().Add(20*time.Second + c.upTo(40*time.Second))
	for time.Now().Before(until) && !c.t.Failed() {
		c.step()
		c.fault()
	}
	c.calm = true
	c.log.mu.Lock()
	c.log.slow = false
	c.log.mu.Unlock()
	c.log.flush(1 << 20)
	until = time.Now().Add(20 * time.Minute)
	for !c.quiet() && !c.t.Failed() {
		if time.Now().After(until) {
			c.fail("it does not come to rest: %s", c.state())
		}
		c.step()
	}
	c.finish()
}

// step lets some time pass and moves everybody on.
func (c *chaos) step() {
	switch {
	case c.chance(40):
		c.wait(time.Millisecond + c.upTo(20*time.Millisecond))
	case c.chance(90):
		c.wait(time.Millisecond + c.upTo(200*time.Millisecond))
	default:
		c.wait(c.upTo(1200 * time.Millisecond))
	}
	c.lead()
	var rest []chaosTimed
	for _, x := range c.timed {
		if time.Now().Before(x.at) && !x.early() {
			rest = append(rest, x)
			continue
		}
		c.running.Go(x.do)
		synctest.Wait()
	}
	c.timed = rest
	for _, w := range c.workers {
		w.step()
		synctest.Wait()
	}
	for _, j := range c.jobs {
		c.client(j)
		synctest.Wait()
	}
	if c.chance(10) {
		c.audit()
	}
	if err := c.check(); err != nil {
		c.fail("%v", err)
	}
}

func (c *chaos) wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *chaos) check() (err error) {
	c.machine.Read(func(s *fsm.State, _ uint64) { err = s.Check() })
	return err
}

// audit compares the soft state with what a new leader would make.
func (c *chaos) audit() {
	if c.seq == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	seq := c.seq
	c.running.Go(func() { result <- seq.Audit(ctx) })
	synctest.Wait()
	cancel() // if it was not answered, the pipe is full
	if err := <-result; err != nil {
		c.fail("the soft state is not what a new term would make:\n%v", err)
	}
}

// lead notices the end of a term and begins the next.
func (c *chaos) lead() {
	if c.seq != nil {
		select {
		case err := <-c.over:
			c.ended(err)
		default:
		}
		return
	}
	if time.Now().Before(c.next) {
		return
	}
	c.log.elect(c.rng.IntN(5))
	c.term++
	skew := c.skew[c.term%3]
	seq, err := sequencer.New(sequencer.Config{
		ServerID: fmt.Sprintf("n%d", c.term%3), Instance: fmt.Sprintf("i%d", c.term%3), Term: c.term, Log: c.log,
		Machine: c.machine, Codec: fsm.Compact{}, Logger: slog.New(slog.DiscardHandler), Seed: c.seed,
		NewClusterID: func() string { return fmt.Sprintf("%032d", 1) },
		Definite:     func(err error) bool { return errors.Is(err, errNeverProposed) },
		Halt:         func(err error) { c.fail("halt: %v", err) },
		EntryOps:     1 + c.rng.IntN(20), InFlight: 1 + c.rng.IntN(4),
		KeepJobs: 2 + c.rng.IntN(20), KeepWorkers: time.Second + c.upTo(20*time.Second),
		Wall: func() time.Time { return time.Now().Add(skew) },
	})
	if err != nil {
		c.fail("%v", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.seq, c.stop, c.over = seq, cancel, make(chan error, 1)
	over := c.over
	c.running.Go(func() { over <- seq.Run(ctx) })
	synctest.Wait()
}

func (c *chaos) ended(err error) {
	if err == nil {
		c.fail("a term ended without saying why")
	}
	c.stop()
	c.seq = nil
	c.next = time.Now().Add(c.upTo(3 * time.Second))
}

// fault does at most one thing that nobody wants.
func (c *chaos) fault() {
	w := c.workers[c.rng.IntN(len(c.workers))]
	switch n := c.rng.IntN(1000); {
	case n < 6:
		w.crash(0)
	case n < 12:
		w.crash(c.upTo(10 * time.Second))
	case n < 18:
		w.disconnect(0)
	case n < 24:
		w.disconnect(c.upTo(10 * time.Second))
	case n < 30:
		w.pause(c.upTo(3 * time.Second))
	case n < 36:
		w.pause(3*time.Second + c.upTo(10*time.Second))
	case n < 38:
		w.leaving = true
	case n < 58:
		c.log.mu.Lock()
		c.log.slow = true
		c.log.mu.Unlock()
		c.later(c.upTo(2*time.Second), func() bool { return false }, func() {
			c.log.mu.Lock()
			c.log.slow = false
			c.log.mu.Unlock()
			c.log.flush(1 << 20)
		})
	case n < 80:
		c.log.flush(1)
	case n < 90:
		c.depose()
	}
	synctest.Wait()
}

// depose ends a term in one of the ways in which terms end.
func (c *chaos) depose() {
	if c.seq == nil {
		return
	}
	switch c.rng.IntN(4) {
	case 0: // in an orderly way
		c.stop()
		synctest.Wait()
		c.log.flush(1 << 20)
	case 1:
		c.log.lose(func() error { return errNeverProposed })
	case 2:
		c.log.lose(func() error { return errUnknown })
	case 3:
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 2))
		c.log.lose(func() error {
			if rng.IntN(2) == 0 {
				return errUnknown
			}
			return errNeverProposed
		})
	}
}

var errUnknown = errors.New("leadership lost while the entry was on its way")

// quiet reports whether all has ended and nothing is held.
func (c *chaos) quiet() bool {
	if c.seq == nil || len(c.timed) > 0 {
		return false
	}
	for _, j := range c.jobs {
		if !j.acked || !c.jobEnded(j.id) {
			return false
		}
	}
	for _, w := range c.workers {
		if w.session == nil || len(w.held) > 0 || len(w.outbox) > 0 {
			return false
		}
	}
	for _, s := range c.status() {
		if s.Held > 0 {
			return false
		}
	}
	return true
}

func (c *chaos) status() map[fsm.WorkerID]sequencer.WorkerStatus {
	if c.seq == nil {
		return nil
	}
	return c.seq.Workers()
}

func (c *chaos) state() string {
	text := fmt.Sprintf("workers %+v", c.status())
	for _, w := range c.workers {
		text += fmt.Sprintf("\n%s (%d): session %v, holds %d, owes %d", w.name, w.id, w.session != nil, len(w.held), len(w.outbox))
	}
	c.machine.Read(func(s *fsm.State, _ uint64) {
		for _, j := range c.jobs {
			job, _ := s.Job(j.id)
			if job.State.Terminal() {
				continue
			}
			text += fmt.Sprintf("\njob %d (acknowledged %v): %v", j.id, j.acked, job.State)
			for i := range job.Total {
				if v, _ := s.Task(fsm.TaskRef{Job: j.id, Index: i}); !v.State.Terminal() {
					text += fmt.Sprintf("\n  %+v %v", v, s.Policy(fsm.TaskRef{Job: j.id, Index: i}))
				}
			}
		}
	})
	return text
}

// finish ends all that was started.
func (c *chaos) finish() {
	if !c.t.Failed() {
		c.audit()
	}
	for _, w := range c.workers {
		w.disconnect(0)
	}
	for _, x := range c.timed {
		c.running.Go(x.do)
	}
	if c.seq != nil {
		c.stop()
	}
	synctest.Wait()
	c.log.mu.Lock()
	c.log.slow = false
	c.log.mu.Unlock()
	c.log.flush(1 << 20)
	c.running.Wait()
}

// chaosJob is a job and the client that wants it.
type chaosJob struct {
	sub    sequencer.Submission
	from   time.Time
	answer chan chaosSubmitted
	acked  bool
	// unknown is set if nobody could say whether it was stored.
	unknown bool
	id      fsm.JobID
}

type chaosSubmitted struct {
	r   sequencer.Submitted
	err error
}

// client submits its job until it is acknowledged, at times again, and cancels
// it, or a task of it, at times.
func (c *chaos) client(j *chaosJob) {
	if j.answer != nil {
		select {
		case r := <-j.answer:
			j.answer = nil
			c.acknowledged(j, r)
		default:
		}
		return
	}
	if c.seq == nil || time.Now().Before(j.from) || c.calm && j.acked {
		return
	}
	seq := c.seq
	switch {
	case !j.acked || c.chance(1):
		c.unacknowledged(j)
		answer := make(chan chaosSubmitted, 1)
		j.answer = answer
		c.running.Go(func() {
			r, err := seq.Submit(context.Background(), j.sub)
			answer <- chaosSubmitted{r, err}
		})
	case c.rng.IntN(2000) < 3:
		c.running.Go(func() {
			if _, err := seq.CancelJob(context.Background(), j.id, "enough"); err == nil {
				c.cancelled(j.id)
			}
		})
	case c.rng.IntN(2000) < 10:
		task := fsm.TaskRef{Job: j.id, Index: uint32(c.rng.IntN(int(j.sub.Total)))}
		c.running.Go(func() {
			if _, err := seq.CancelTask(context.Background(), task, "enough"); err == nil {
				c.cancelledTask(task)
			}
		})
	}
}

func (c *chaos) acknowledged(j *chaosJob, r chaosSubmitted) {
	if r.err != nil {
		j.unknown = j.unknown || errors.Is(r.err, sequencer.ErrOutcomeUnknown)
		if !errors.Is(r.err, sequencer.ErrTermOver) && !errors.Is(r.err, sequencer.ErrOutcomeUnknown) {
			c.fail("a submission was answered with %v", r.err)
		}
		return
	}
	if j.acked && r.r.ID != j.id {
		c.fail("one key became jobs %d and %d", j.id, r.r.ID)
	}
	j.acked, j.id = true, r.r.ID
}

// unacknowledged looks whether a job does not exist of which all said so.
func (c *chaos) unacknowledged(j *chaosJob) {
	if j.acked || j.unknown {
		return
	}
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if id, _, sealed, known := s.Key(j.sub.Key); known && sealed {
			c.fail("job %d exists, and its client was told that it does not", id)
		}
	})
}

// cancelled looks whether a job is what its client was told.
func (c *chaos) cancelled(id fsm.JobID) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if job, ok := s.Job(id); ok && job.State != fsm.JobCancelled {
			c.fail("job %d was cancelled and is %v", id, job.State)
		}
	})
}

func (c *chaos) cancelledTask(t fsm.TaskRef) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if v, ok := s.Task(t); ok && v.State != fsm.Cancelled {
			c.fail("task %v was cancelled and is %v", t, v.State)
		}
	})
}

// submission makes a random job.
func (c *chaos) submission(number int) sequencer.Submission {
	h := &dtaskv1.JobHeader{Name: fmt.Sprintf("job%d", number), Priority: dtaskv1.Priority(1 + c.rng.IntN(4))}
	if c.chance(50) {
		h.OnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
	}
	if c.chance(10) {
		h.DeadlineMs = 1000 + c.rng.Int64N(30_000)
	}
	for range 1 + c.rng.IntN(3) {
		h.Policies = append(h.Policies, c.policy())
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		c.fail("%v", err)
	}
	sub := sequencer.Submission{Key: h.GetName(), Header: raw, Total: uint32(1 + c.rng.IntN(30))}
	copy(sub.Digest[:], h.GetName())
	for i := uint32(0); i < sub.Total; {
		b := fsm.NewChunkBuilder(i)
		for n := 1 + c.rng.IntN(10); n > 0 && i < sub.Total; n-- {
			var deps []uint32
			for d := range i {
				if len(deps) < 3 && c.rng.IntN(int(i)+2) == 0 {
					deps = append(deps, d)
				}
			}
			b.Add(fmt.Sprintf("t%d", i), uint32(c.rng.IntN(len(h.GetPolicies()))), deps, nil)
			i++
		}
		chunk := b.Chunk()
		sub.Sum = chunk.Sum(sub.Sum)
		sub.Chunks = append(sub.Chunks, chunk)
	}
	return sub
}

func (c *chaos) policy() *dtaskv1.TaskPolicy {
	p := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 500 + c.rng.Int64N(20_000)}
	if c.chance(80) {
		p.Retry = &dtaskv1.RetryPolicy{
			Max: uint32(c.rng.IntN(4)), InitialMs: 1 + c.rng.Int64N(1000), MultiplierPermille: 2000, MaxDelayMs: 5000, Jitter: c.chance(50),
		}
	}
	if c.chance(25) {
		p.Execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	}
	if c.chance(15) {
		p.QueueTimeoutMs = 1000 + c.rng.Int64N(20_000)
	}
	if c.chance(20) {
		p.HeartbeatTimeoutMs = 1000 + c.rng.Int64N(4000)
	}
	if c.chance(30) {
		p.Resources = map[string]int64{"cpu": 500 + c.rng.Int64N(1500)}
	}
	if c.chance(20) {
		p.Require = map[string]string{"zone": "a"}
	}
	if c.chance(30) {
		p.Priority = dtaskv1.Priority(1 + c.rng.IntN(4))
	}
	return p
}
