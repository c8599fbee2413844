package sequencer_test

import (
	"math/rand/v2"
	"time"
)

// simConfig is what a worker offers.
type simConfig struct {
	slots    uint32
	cpu      int64
	zone     string // label that some tasks require; "" = none
	pool     bool   // it has the label that some queues require
	reserved bool
}

const simMaxSlots = 5

// hasNewConfigs reports whether workers change in the run of a seed. The first seeds give the runs
// that they gave before, by which planted bugs are caught.
func hasNewConfigs(seed uint64) bool { return seed > 1000 && seed%7 < 3 }

// simConfigs restarts workers with other slots, resources and labels, and changes those of
// processes that reconnect: what they hold stays with them then.
type simConfigs struct {
	c   *sim
	rng *rand.Rand
}

func newSimConfigs(c *sim) {
	c.surplus = simPriorities * (simMaxSlots + simPrefetch)
	x := &simConfigs{c: c, rng: rand.New(rand.NewPCG(c.seed, 4))}
	c.after(x.pause(), x.turn)
}

func (x *simConfigs) pause() time.Duration {
	return time.Duration(x.rng.Int64N(int64(3 * time.Second)))
}

func (x *simConfigs) turn() {
	c := x.c
	if c.calm {
		return
	}
	w := c.workers[x.rng.IntN(len(c.workers))]
	to := simConfig{
		slots: 1 + x.rng.Uint32N(simMaxSlots), cpu: 1000 + 500*x.rng.Int64N(5), zone: []string{"", "a", "b"}[x.rng.IntN(3)],
		pool: x.rng.IntN(3) == 0, reserved: x.rng.IntN(4) == 0,
	}
	w.configure(to, x.rng.IntN(2) == 0)
	c.after(x.pause(), x.turn)
}

// configure changes what a worker offers: by a restart, or when it connects again.
func (w *simWorker) configure(to simConfig, restart bool) {
	if w.gone || w.calling && !restart { // its hello has the former configuration
		return
	}
	w.c.note("configure", w.label(), uint64(to.slots))
	if restart {
		w.crash(0)
	} else {
		w.disconnect(0)
		w.surplus = len(w.held)
	}
	w.simConfig = to
}

// restoreConfigs lets worker w0 run all tasks again.
func (c *sim) restoreConfigs() {
	if !hasNewConfigs(c.seed) {
		return
	}
	for _, w := range c.workers {
		if w.number == 0 {
			w.configure(simConfig{slots: w.slots, cpu: simCPU, zone: "a"}, true)
		}
	}
}
