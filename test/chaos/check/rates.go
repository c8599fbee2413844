package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
)

const (
	// rateGrain is how long after the begin of a batch the leader may learn what it handles in
	// it: the tokens of a limit are those of the begin.
	rateGrain = 200 * time.Millisecond
	// maxRateWindow is how many assignments are compared with the rate at most, from each on:
	// runs may last for hours.
	maxRateWindow = 500
)

// A Rate is what a limit promises: in any time t, at most Burst + t·Starts/Period tasks are
// assigned to workers.
type Rate struct {
	Starts int           `json:"starts"`
	Period time.Duration `json:"period"`
	Burst  int           `json:"burst"`
}

// atMost returns how many tasks are assigned in some time at most.
func (r Rate) atMost(lasts time.Duration) int {
	return r.Burst + int(int64(lasts)*int64(r.Starts)/int64(r.Period))
}

// An assignment is what is known of when an attempt was assigned: not before its task was
// ready, and not after it started.
type assignment struct{ ready, start time.Duration }

// ratedLimit is what was assigned under a limit with a rate.
type ratedLimit struct {
	rate     *Rate
	assigned []assignment // in order of ready
}

// rates checks that in no time more tasks were assigned than the rate of a limit promises.
// When exactly is unknown, but all attempts that became ready and started within a time were
// assigned in it.
func (a *account) rates() {
	for use, l := range a.rated() {
		for i, first := range l.assigned {
			if i > 0 && first.ready == l.assigned[i-1].ready {
				continue
			}
			window := slices.Clone(l.assigned[i:min(len(l.assigned), i+maxRateWindow)])
			slices.SortFunc(window, func(x, y assignment) int { return cmp.Compare(x.start, y.start) })
			if n := l.rate.exceeded(first.ready, window); n > 0 {
				a.faults.add(Unexpected, "limit "+use, "%d tasks were assigned from %v to %v: more than %d in %v, with a burst of %d",
					n, first.ready, window[n-1].start, l.rate.Starts, l.rate.Period, l.rate.Burst)
				break // later ones would follow from it
			}
		}
	}
}

// exceeded returns how many assignments since a time, in order of their starts, are more than
// a rate allows; 0 = it allows all.
func (r Rate) exceeded(since time.Duration, window []assignment) int {
	for i, last := range window {
		if i+1 > r.atMost(last.start-since+rateGrain) {
			return i + 1
		}
	}
	return 0
}

// rated returns the assignments of the tasks that use each limit with a rate.
func (a *account) rated() map[string]*ratedLimit {
	rated := make(map[string]*ratedLimit)
	for _, f := range a.finals {
		p := a.plans[f.Name]
		if p == nil || p.Rate == nil {
			continue
		}
		submitted := a.submitted(p)
		for i := range p.Tasks {
			at := place{f.ID, p.Tasks[i].ID}
			ready := a.ready(at, &p.Tasks[i], submitted)
			seen := make(map[int]bool) // attempts: one that was executed twice was assigned once
			for _, r := range a.runs[at] {
				if seen[r.Attempt] || ready > r.Start { // the latter is reported by others
					continue
				}
				seen[r.Attempt] = true
				for _, use := range p.Uses {
					if rated[use] == nil {
						rated[use] = &ratedLimit{rate: p.Rate}
					}
					rated[use].assigned = append(rated[use].assigned, assignment{ready, r.Start})
				}
			}
		}
	}
	for _, l := range rated {
		slices.SortFunc(l.assigned, func(x, y assignment) int { return cmp.Compare(x.ready, y.ready) })
	}
	return rated
}

// submitted returns the earliest time at which a job may have been submitted.
func (a *account) submitted(p *Plan) time.Duration {
	submitted := history.Never
	for _, c := range a.calls {
		if c.Kind == history.Submit && c.Key == p.Key && c.Verdict != history.Fail {
			submitted = min(submitted, c.Call)
		}
	}
	return submitted
}

// ready returns the earliest time at which a task of a job may have become ready.
func (a *account) ready(at place, p *PlannedTask, submitted time.Duration) time.Duration {
	ready := submitted
	for _, dependency := range p.After {
		ended := history.Never
		for _, r := range a.runs[place{at.job, dependency}] {
			if r.Ended() && r.Exit == 0 {
				ended = min(ended, r.End)
			}
		}
		ready = max(ready, ended)
	}
	return ready
}
