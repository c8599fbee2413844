package sequencer_test

import (
	"context"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// simFault is an injected fault. To add one, write a function and add it to
// simFaults with a weight; the kind is its number in the catalog of
// docs/testing.md.
type simFault struct {
	kind   string
	name   string
	weight int
	do     func(*sim)
}

var simFaults = []simFault{
	{"F1", "kill-leader", 8, func(c *sim) { c.withLeader((*simTerm).kill) }},
	{"F8", "stop-leader", 6, func(c *sim) { c.withLeader((*simTerm).stop) }},
	{"F9", "freeze-leader", 8, (*sim).freezeLeader},
	{"F22", "depose-leader", 12, (*sim).deposeLeader},
	{"F21", "isolate-leader", 8, (*sim).isolateLeader},
	{"F2", "restart-replica", 8, func(c *sim) { c.withReplica((*simReplica).restart) }},
	{"F62", "snapshot", 8, func(c *sim) { c.withReplica((*simReplica).take) }},
	{"F60", "install-snapshot", 4, (*sim).installSnapshot},
	{"F32", "replica-lags", 20, func(c *sim) { c.withReplica(func(r *simReplica) { r.follow(1 + c.rng.IntN(50)) }) }},
	{"F51", "slow-log", 12, func(c *sim) { c.log.slow = time.Now().Add(c.upTo(3 * time.Second)) }},
	{"F41", "low-space", 5, func(c *sim) {
		c.lowSpace.Store(true)
		c.after(c.upTo(3*time.Second), func() { c.lowSpace.Store(false) })
	}},
	{"F12", "kill-worker", 16, func(c *sim) { c.withWorker(func(w *simWorker) { w.crash(c.rarely(10 * time.Second)) }) }},
	{"F29", "reset-worker", 14, func(c *sim) { c.withWorker(func(w *simWorker) { w.disconnect(0) }) }},
	{"F34", "cut-worker", 12, func(c *sim) { c.withWorker(func(w *simWorker) { w.disconnect(c.upTo(10 * time.Second)) }) }},
	{"F13", "stop-worker", 14, func(c *sim) { c.withWorker(func(w *simWorker) { w.pause(c.upTo(8 * time.Second)) }) }},
	{"F30", "slow-worker", 8, func(c *sim) {
		c.withWorker(func(w *simWorker) {
			if w.session != nil {
				w.session.lag = c.upTo(2 * time.Second)
			}
		})
	}},
	{"F56", "order-drain", 6, (*sim).orderDrain},
	{"F56", "leave", 6, func(c *sim) {
		c.withWorker(func(w *simWorker) {
			w.leaving = true
			w.sendSoon()
		})
	}},
	{"F15", "kill-worker-and-leader", 3, func(c *sim) {
		c.withWorker(func(w *simWorker) { w.crash(0) })
		c.withLeader((*simTerm).kill)
	}},
	{"F4", "kill-all", 1, (*sim).killAll},
}

// fault injects a fault and schedules the next.
func (c *sim) fault() {
	if c.calm || c.opts.Calm {
		return
	}
	f := pick(c.rng, simFaults, func(f simFault) int { return f.weight })
	c.note(f.name, 0, 0)
	c.fired[f.kind]++
	f.do(c)
	c.after(c.upTo(2*c.opts.FaultEvery), c.fault)
}

// rarely returns a random duration, mostly 0.
func (c *sim) rarely(d time.Duration) time.Duration {
	if c.chance(50) {
		return 0
	}
	return c.upTo(d)
}

func (c *sim) withLeader(do func(*simTerm)) {
	if c.leader != nil {
		do(c.leader)
	}
}

func (c *sim) withWorker(do func(*simWorker)) {
	if w := c.workers[c.rng.IntN(len(c.workers))]; !w.gone {
		do(w)
	}
}

// withReplica calls f with a replica that no term uses.
func (c *sim) withReplica(do func(*simReplica)) {
	if r := c.log.replicas[c.rng.IntN(len(c.log.replicas))]; r.term == nil {
		do(r)
	}
}

// deposeLeader ends a term by an election that the leader learns of
// immediately.
func (c *sim) deposeLeader() {
	c.withLeader(func(t *simTerm) {
		switch c.rng.IntN(3) {
		case 0:
			t.depose(0, func() error { return errNeverProposed })
		case 1:
			t.depose(0, func() error { return errUnknown })
		default:
			t.depose(0, c.mixed())
		}
	})
}

// isolateLeader makes a zombie: workers and clients still reach it.
func (c *sim) isolateLeader() {
	c.withLeader(func(t *simTerm) { t.depose(50*time.Millisecond+c.upTo(4*time.Second), c.mixed()) })
}

// freezeLeader pauses its process: for a short time, or until another leads.
func (c *sim) freezeLeader() {
	c.withLeader(func(t *simTerm) {
		d := c.upTo(5 * time.Second)
		t.frozen = time.Now().Add(d)
		if d > 500*time.Millisecond && c.chance(70) {
			t.depose(d+c.upTo(300*time.Millisecond), c.mixed())
		}
	})
}

func (c *sim) installSnapshot() {
	c.withReplica(func(r *simReplica) {
		for _, from := range c.log.replicas {
			if from.applied > r.applied {
				r.install(from)
				return
			}
		}
	})
}

// killAll kills all processes: what was not committed is gone.
func (c *sim) killAll() {
	for len(c.terms) > 0 && !c.free {
		c.terms[0].kill()
		c.terms = c.terms[1:]
	}
	for _, r := range c.log.replicas {
		if r.term == nil {
			r.restart()
		}
	}
	for _, w := range c.workers {
		if !w.gone {
			w.crash(0)
		}
	}
}

// orderDrain drains or undrains a worker.
func (c *sim) orderDrain() {
	t := c.anyTerm()
	if t == nil {
		return
	}
	name, deadline := c.workers[c.rng.IntN(len(c.workers))].name, c.upTo(5*time.Second)
	ask := func(ctx context.Context, s *sequencer.Sequencer) error {
		return s.Drain(ctx, name, deadline, "maintenance")
	}
	if c.chance(40) {
		ask = func(ctx context.Context, s *sequencer.Sequencer) error { _, err := s.Undrain(ctx, name); return err }
	}
	c.call(t, 5*time.Second, ask, func(error) {}) // it may be rejected
}

// undrainAll undrains all workers until none drains.
func (c *sim) undrainAll() {
	c.after(time.Second, c.undrainAll)
	var names []string
	c.log.truth.Read(func(s *fsm.State, _ uint64) {
		for w := range s.Workers() {
			if w.Drains() {
				names = append(names, w.Name)
			}
		}
	})
	for _, name := range names {
		if t := c.leader; t != nil {
			c.call(t, 5*time.Second, func(ctx context.Context, s *sequencer.Sequencer) error {
				_, err := s.Undrain(ctx, name)
				return err
			}, func(error) {})
		}
	}
}
