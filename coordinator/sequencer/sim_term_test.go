package sequencer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simTerm is a term of leadership, with its entries in flight. A term that is
// deposed and doesn't know it is a zombie.
type simTerm struct {
	c       *sim
	number  uint64
	replica *simReplica
	seq     *sequencer.Sequencer
	stepped *sequencer.Stepped // nil: the term has its own goroutines
	cancel  context.CancelFunc
	result  chan error // with own goroutines; size 1

	mu       sync.Mutex     // guards proposed, began, disorder and preempted
	proposed []*simProposal // not yet seen by the driver
	began    time.Time      // when the last batch began
	disorder string         // a start that was not in order; not yet seen by the driver
	order    *simOrder      // belongs to the goroutine of the sequencer
	queue    []*simProposal // in flight
	last     time.Time      // when the last of them is committed

	preempted map[fsm.WorkerID]bool // workers where attempts were to end for urgent tasks; guarded by mu

	deposed bool // none of its entries is committed any more
	handed  bool // the next leader has the entries that were in flight then
	noticed bool // it has learned of its end: fate decides the errors of its proposals
	fate    func() error
	frozen  time.Time // the process is paused until then
	wakeAt  time.Time
	over    bool
	woken   atomic.Bool     // there are new notifications
	telling map[uint64]bool // notifications in delivery
}

// elect starts the next term on one of the replicas.
func (c *sim) elect() {
	if c.leader != nil {
		return
	}
	var able []*simReplica
	for _, r := range c.log.replicas {
		if r.term == nil {
			able = append(able, r)
		}
	}
	if len(able) < 2 { // no quorum of replicas with all entries
		c.after(200*time.Millisecond, c.elect)
		return
	}
	r := able[c.rng.IntN(len(able))]
	r.catchUp()
	c.log.truth = r.machine
	late := c.log.late
	c.log.late = nil
	for _, data := range late[:c.rng.IntN(len(late)+1)] {
		c.log.commit(r, data, true, 0)
	}
	c.number++
	c.note("elect", c.number, uint64(r.number))
	t := &simTerm{c: c, number: c.number, replica: r, telling: map[uint64]bool{}, preempted: map[fsm.WorkerID]bool{}}
	c.after(c.upTo(100*time.Millisecond), t.notify)
	r.term = t
	cfg := sequencer.Config{
		ServerID: fmt.Sprintf("n%d", r.number), Instance: fmt.Sprintf("i%d", r.number), Term: t.number, Log: t,
		Machine: r.machine, Logger: slog.New(preemptionLog{slog.DiscardHandler, t}), Seed: c.seed,
		NewClusterID: func() string { return fmt.Sprintf("%032d", 1) },
		Definite:     func(err error) bool { return errors.Is(err, errNeverProposed) },
		Halt:         func(err error) { c.fail("halt: %v", err) },
		CheckSubmit: func() error {
			if c.lowSpace.Load() {
				return &sequencer.BusyError{What: "disk nearly full", RetryAfter: time.Second}
			}
			return nil
		},
		EntryOps: c.opts.EntryOps, InFlight: c.opts.InFlight, KeepJobs: c.opts.KeepJobs, KeepWorkers: c.opts.KeepWorkers,
		DeadLetterNotifications: simDeadLetters[c.opts.DeadLetters], NotificationsCommitted: func() { t.woken.Store(true) },
		Zone: simZone(r.number), Lease: c.opts.Lease, WallClock: t.wallClock,
	}
	if hasClockDoubt(c.seed) {
		cfg.ClockAgrees = c.clockAgrees
	}
	if c.clocks != nil {
		cfg.ClockAgrees, cfg.CredentialClock = c.clocks.watch(t).agrees, t.rightClock
	}
	seq, err := sequencer.New(cfg)
	if err != nil {
		c.fail("%v", err)
		return
	}
	t.seq, t.order = seq, newSimOrder(r.machine)
	t.order.preempted = func(id fsm.WorkerID) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.preempted[id]
	}
	c.terms, c.leader = append(c.terms, t), t
	if !c.free {
		t.stepped = seq.Stepped()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.result = cancel, make(chan error, 1)
	c.asking.Go(func() { t.result <- seq.Run(ctx) })
	synctest.Wait()
}

// wallClock returns the time by the wall clock of the replica. A batch reads it when it begins.
func (t *simTerm) wallClock() time.Time {
	now := time.Now()
	t.mu.Lock()
	t.began = now
	t.mu.Unlock()
	if t.c.clocks == nil {
		return now.Add(t.c.opts.Skew[t.replica.number])
	}
	return t.c.clocks.now(t.replica.number)
}

// rightClock returns the time by the clock of the replica if no fault had set it: by those of the
// others, every replica knows how wrong it is before it leads.
func (t *simTerm) rightClock() time.Time { return time.Now().Add(t.c.opts.Skew[t.replica.number]) }

// Propose implements sequencer.Log.
func (t *simTerm) Propose(data []byte) sequencer.Proposal {
	disorder := t.order.proposed(data, t.seq)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disorder = cmp.Or(t.disorder, disorder)
	p := &simProposal{data: data, at: time.Now(), began: t.began, done: make(chan struct{})}
	t.proposed = append(t.proposed, p)
	return p
}

func (t *simTerm) isFrozen() bool { return time.Now().Before(t.frozen) }

// step lets the term do everything that it can do now.
func (t *simTerm) step() (moved bool) {
	if t.over || t.isFrozen() {
		return false
	}
	var err error
	if t.stepped != nil {
		moved, err = t.stepped.Step()
	} else {
		synctest.Wait()
		select {
		case err = <-t.result:
		default:
		}
	}
	moved = t.pickUp() || moved
	if err != nil {
		t.ended()
		return true
	}
	return moved
}

// pickUp moves new proposals to the queue.
func (t *simTerm) pickUp() bool {
	t.mu.Lock()
	list, disorder := t.proposed, t.disorder
	t.proposed, t.disorder = nil, ""
	t.mu.Unlock()
	if disorder != "" {
		t.c.fail("term %d: %s", t.number, disorder)
	}
	for _, p := range list {
		t.c.proposals++
		p.order = t.c.proposals
		t.c.note("propose", t.number, uint64(len(p.data)))
		t.c.wasProposed(p)
		switch {
		case t.noticed:
			p.settle(nil, 0, t.fate())
		case t.deposed:
			t.queue = append(t.queue, p)
		default:
			t.queue = append(t.queue, p)
			t.last = latest(t.last, time.Now().Add(t.c.log.latency()))
			t.c.at(t.last, t.commit)
		}
	}
	return len(list) > 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// commit commits the next entry.
func (t *simTerm) commit() {
	switch {
	case t.deposed || t.over || len(t.queue) == 0:
	case t.isFrozen():
		t.c.at(t.frozen, t.commit)
	default:
		p := t.queue[0]
		t.queue = t.queue[1:]
		response := t.c.log.commit(t.replica, p.data, false, p.order)
		p.settle(response, t.replica.applied, nil)
	}
}

// plan schedules the next step of the term.
func (t *simTerm) plan() {
	if t.stepped == nil || t.over {
		return
	}
	next := t.stepped.Next()
	if t.isFrozen() {
		next = t.frozen
	}
	// Overdue work waits for the log.
	now := time.Now()
	if !next.After(now) || t.wakeAt.After(now) && !next.Before(t.wakeAt) {
		return
	}
	t.wakeAt = next
	t.c.at(next, func() {})
}

// depose ends leadership; the term learns of it later. The next leader may have
// some of the entries in flight.
func (t *simTerm) depose(unnoticed time.Duration, fate func() error) {
	if t.deposed || t.over {
		return
	}
	t.c.losses++
	t.c.note("depose", t.number, uint64(unnoticed))
	t.deposed, t.fate = true, fate
	t.c.leader = nil
	if unnoticed == 0 && !t.isFrozen() {
		t.notice()
	} else {
		t.handed = true
		for _, p := range t.queue {
			t.c.log.late = append(t.c.log.late, p.data)
		}
		t.c.after(unnoticed, t.notice)
	}
	t.c.after(t.c.upTo(2*time.Second), t.c.elect)
}

// notice lets the term learn of its end.
func (t *simTerm) notice() {
	if t.over || t.noticed {
		return
	}
	if t.isFrozen() {
		t.c.at(t.frozen, t.notice)
		return
	}
	t.c.note("notice", t.number, 0)
	t.noticed = true
	wait := len(t.queue) > 0 && t.c.chance(50) // it learns of it by the first failed entry
	lost := false
	for _, p := range t.queue {
		err := errUnknown
		if !t.handed {
			err = t.fate()
			if errors.Is(err, errNeverProposed) {
				lost = true
			} else {
				t.c.gap = t.c.gap || lost
				t.c.log.late = append(t.c.log.late, p.data)
			}
		}
		p.settle(nil, 0, err)
	}
	t.queue = nil
	if !wait {
		t.endOrderly()
	}
}

func (t *simTerm) endOrderly() {
	if t.stepped != nil {
		t.stepped.Stop()
	} else {
		t.cancel()
	}
}

// stop ends the term after its entries in flight.
func (t *simTerm) stop() {
	t.c.losses++
	t.c.note("stop", t.number, 0)
	t.endOrderly()
}

// kill ends the leader's process: it sends nothing more.
func (t *simTerm) kill() {
	if t.stepped == nil {
		t.depose(0, func() error { return errUnknown })
		return
	}
	t.c.losses++
	t.c.note("kill", t.number, 0)
	t.over = true
	t.c.hangUp(t)
	t.ended()
	t.replica.restart()
}

// ended removes the term.
func (t *simTerm) ended() {
	t.c.note("over", t.number, 0)
	t.over = true
	t.replica.term = nil
	if t.cancel != nil {
		t.cancel()
	}
	for _, p := range t.queue {
		if !t.deposed && !p.settled {
			t.c.log.late = append(t.c.log.late, p.data)
		}
		if !p.settled {
			p.settle(nil, 0, errUnknown)
		}
	}
	t.queue = nil
	if t.c.leader == t {
		t.c.leader = nil
		t.c.after(t.c.upTo(2*time.Second), t.c.elect)
	}
}

// end ends the term at the end of the simulation.
func (t *simTerm) end() {
	if t.over {
		return
	}
	t.frozen, t.noticed, t.fate = time.Time{}, true, func() error { return errUnknown }
	for _, p := range t.queue {
		p.settle(nil, 0, errUnknown)
	}
	t.queue = nil
	t.endOrderly()
	for range 100 {
		if t.step(); t.over {
			return
		}
	}
}

// anyTerm returns the term that a client or a worker believes to lead, or nil.
func (c *sim) anyTerm() *simTerm {
	if len(c.terms) == 0 {
		return nil
	}
	if c.chance(80) && c.leader != nil {
		return c.leader
	}
	return c.terms[c.rng.IntN(len(c.terms))]
}

// holdsNothing reports whether no worker holds attempts of this term.
func (t *simTerm) holdsNothing() bool { return t.seq.HeldNow() == 0 }

// mixed returns a fate that differs between entries.
func (c *sim) mixed() func() error {
	rng := rand.New(rand.NewPCG(c.rng.Uint64(), 2))
	return func() error {
		if rng.IntN(2) == 0 {
			return errUnknown
		}
		return errNeverProposed
	}
}
