package check

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// A metered execution is one that takes a resource of which its queue has a quota.
type metered struct {
	ledger.Run
	takes float64
	until time.Duration // it counts at least until then
}

// meter is what was executed in a queue with a quota on a resource.
type meter struct {
	quota float64
	runs  []metered // in order of their starts
}

// meters checks that what runs in a queue at one time takes no more of a resource than the
// queue's quota. Attempts of a worker that is marked down don't count, but one that is cut off
// may still execute them: an execution counts until something harms its worker.
func (a *account) meters() {
	for queue, m := range a.metered() {
		for running, takes := range m.starts() {
			if takes <= m.quota {
				continue
			}
			var runs []ledger.Run
			for _, r := range running {
				runs = append(runs, r.Run)
			}
			a.faults.add(Unexpected, "queue "+queue, "its tasks take %g of a resource, and its quota is %g: %s", takes, m.quota, showHolders(runs))
			break // later ones would follow from it
		}
	}
}

// starts returns what runs when each execution starts, itself included, and what that takes
// together.
func (m *meter) starts() iter.Seq2[[]metered, float64] {
	return func(yield func([]metered, float64) bool) {
		var running []metered
		for _, r := range m.runs {
			running = append(slices.DeleteFunc(running, func(x metered) bool { return x.until <= r.Start }), r)
			takes := 0.0 // of halves, which have no rounding
			for _, x := range running {
				takes += x.takes
			}
			if !yield(running, takes) {
				return
			}
		}
	}
}

// metered returns the executions in each queue with a quota on a resource. One without an end
// was killed: how long it lasted is unknown.
func (a *account) metered() map[string]*meter {
	all := make(map[string]*meter)
	for _, f := range a.finals {
		p := a.plans[f.Name]
		if p == nil || p.Meter == "" {
			continue
		}
		if all[p.Meter] == nil {
			all[p.Meter] = &meter{quota: p.Quota}
		}
		for _, t := range p.Tasks {
			for _, r := range a.runs[place{f.ID, t.ID}] {
				if until := min(r.End, a.harmedAt(&r)); until > r.Start {
					all[p.Meter].runs = append(all[p.Meter].runs, metered{r, t.Takes, until})
				}
			}
		}
	}
	for _, m := range all {
		slices.SortFunc(m.runs, func(x, y metered) int { return cmp.Compare(x.Start, y.Start) })
	}
	return all
}

// harmedAt returns when an execution or its worker was first harmed before it ended, from when
// on its worker may be marked down. It may be before the execution began.
func (a *account) harmedAt(r *ledger.Run) time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, h := range a.harms {
		if h.From < at && ledger.Harmed([]ledger.Harm{h}, r, r.End) {
			at = h.From
		}
	}
	return at
}
