package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// held returns the executions that ended of the tasks that use each limit, in order of their
// starts. One without an end was killed: how long it lasted is unknown.
func (a *account) held() map[string][]ledger.Run {
	held := make(map[string][]ledger.Run)
	for at, runs := range a.runs {
		f := a.finals[at.job]
		if f == nil || a.plans[f.Name] == nil {
			continue
		}
		for _, use := range a.plans[f.Name].Uses {
			for _, r := range runs {
				if r.Ended() {
					held[use] = append(held[use], r)
				}
			}
		}
	}
	for _, runs := range held {
		slices.SortFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Start, y.Start) })
	}
	return held
}

// limits checks that at no time two executions hold one limit of 1. A stopped process cannot
// end what it executes when its lease ends: only its fencing token keeps it out.
func (a *account) limits() {
	for use, runs := range a.held() {
		for i := range runs {
			for k := i + 1; k < len(runs) && runs[k].Start < runs[i].End; k++ {
				x, y := &runs[i], &runs[k]
				if !a.stopped(x.Worker, y.Start) && !a.stopped(y.Worker, y.Start) {
					a.faults.add(Unexpected, "limit "+use, "held twice: by job %s task %s %s and by job %s task %s %s",
						x.Job, x.Task, show(runs[i:i+1]), y.Job, y.Task, show(runs[k:k+1]))
				}
			}
		}
	}
}

// stopped reports whether a worker's process was stopped at a time, or had continued shortly
// before.
func (a *account) stopped(worker string, at time.Duration) bool {
	return slices.ContainsFunc(a.harms, func(h ledger.Harm) bool {
		return h.Worker == worker && h.Cause == ledger.Stopped && h.From <= at && (h.Until == 0 || at <= h.Until)
	})
}

// Handovers counts how often a limit went from one execution to another.
func Handovers(r Record) (n int) {
	for _, runs := range newAccount(r).held() {
		n += max(0, len(runs)-1)
	}
	return n
}
