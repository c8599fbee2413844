package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// A limit is what was executed under a limit.
type limit struct {
	holders int          // how many may hold it at a time
	runs    []ledger.Run // those that ended, in order of their starts
}

// held returns the executions that ended of the tasks that use each limit. One without an end
// was killed: how long it lasted is unknown.
func (a *account) held() map[string]*limit {
	held := make(map[string]*limit)
	for at, runs := range a.runs {
		f := a.finals[at.job]
		if f == nil || a.plans[f.Name] == nil {
			continue
		}
		p := a.plans[f.Name]
		if p.Rate != nil {
			continue
		}
		for _, use := range p.Uses {
			if held[use] == nil {
				held[use] = &limit{holders: max(1, p.Holders)}
			}
			for _, r := range runs {
				if r.Ended() {
					held[use].runs = append(held[use].runs, r)
				}
			}
		}
	}
	for _, l := range held {
		slices.SortFunc(l.runs, func(x, y ledger.Run) int { return cmp.Compare(x.Start, y.Start) })
	}
	return held
}

// limits checks that at no time more executions hold a limit than may. A stopped process
// can't end what it executes when its lease ends, and executes nothing.
func (a *account) limits() {
	for use, l := range a.held() {
		var holders []ledger.Run // when the next one starts
		for i := range l.runs {
			r := l.runs[i]
			holders = append(slices.DeleteFunc(holders, func(x ledger.Run) bool { return x.End <= r.Start }), r)
			active := slices.DeleteFunc(slices.Clone(holders), func(x ledger.Run) bool { return a.stopped(x.Worker, r.Start) })
			if len(active) > l.holders && !a.stopped(r.Worker, r.Start) {
				a.faults.add(Unexpected, "limit "+use, "held by %d, and its number is %d: %s", len(active), l.holders, showHolders(active))
			}
		}
	}
}

// showHolders formats executions of several tasks for messages.
func showHolders(runs []ledger.Run) string {
	var text []string
	for _, r := range runs {
		text = append(text, fmt.Sprintf("job %s task %s %s", r.Job, r.Task, show([]ledger.Run{r})))
	}
	return strings.Join(text, " and ")
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
	for _, l := range newAccount(r).held() {
		n += max(0, len(l.runs)-1)
	}
	return n
}
