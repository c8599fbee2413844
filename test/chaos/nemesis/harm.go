package nemesis

import (
	"slices"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// reaction is how long a fault may still cause new attempts after it is healed: a worker
// is marked down after three seconds of silence, twice that if most of them are silent,
// and its session must be open again.
const reaction = 10 * time.Second

// Harms returns which workers the faults have harmed so far, and when. The faults of
// replicas alone harm no worker, unless the leader accepts no sessions. The harm to the clocks has their name in place of a worker's.
func (w *World) Harms() []ledger.Harm {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.harms)
}

// harm records the harm to one execution.
func (w *World) harm(fault string, l *ledger.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.harms = append(w.harms, ledger.Harm{Worker: l.Worker, Execution: l.Execution, Cause: fault})
}

// beginHarmLocked records that a fault has taken things, and returns the indexes of the
// harms to workers.
func (w *World) beginHarmLocked(fault string, things []string, at time.Duration) (indexes []int) {
	for _, t := range things {
		h := ledger.Harm{Worker: t, From: at, Cause: fault}
		switch {
		case t == WorkerLinks:
			h.Worker = ""
		case t == Clocks:
		case w.Cluster == nil || w.Cluster.Worker(t) == nil:
			continue
		}
		indexes = append(indexes, len(w.harms))
		w.harms = append(w.harms, h)
	}
	return indexes
}

// endHarmLocked records that these harms are over; without a clock they never are.
func (w *World) endHarmLocked(indexes []int) {
	at, err := ledger.Now()
	if err != nil {
		return
	}
	for _, i := range indexes {
		w.harms[i].Until = at + reaction
	}
}
