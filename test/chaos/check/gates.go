package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

const (
	// clocksHarmed is the worker of a harm to the wall clocks of replicas.
	clocksHarmed = "clocks"
	// clockGrain is how early a job may start: wall clocks are read in milliseconds.
	clockGrain = 2 * time.Millisecond
	// replacedBy and expiredWith are in the reason of a cancellation by another job with the
	// key, and by the expiry of the job.
	replacedBy  = "replaced by job "
	expiredWith = "expired: "
)

// gates checks that no task starts before the gate of its job, that jobs with one concurrency
// key don't run at the same time, and that no task of an expired job has started. A worker that
// was harmed may have been marked down, and then what it still executes keeps no key.
func (a *account) gates() {
	for _, f := range a.finals {
		if p := a.plans[f.Name]; p != nil && p.Gate != nil {
			a.notBefore(p, f)
			a.expired(f)
		}
	}
	for key, runs := range a.keyed() {
		for i := range runs {
			for k := i + 1; k < len(runs) && runs[k].Start < runs[i].End; k++ {
				x, y := runs[i], runs[k]
				if x.Job != y.Job && a.harmedAt(&x) > y.Start && !a.stopped(y.Worker, y.Start) {
					a.faults.add(Unexpected, "concurrency key "+key, "two jobs ran: %s", showHolders([]ledger.Run{x, y}))
				}
			}
		}
	}
}

// keyed returns the executions that ended of the jobs with each concurrency key, in order of
// their starts.
func (a *account) keyed() map[string][]ledger.Run {
	keyed := make(map[string][]ledger.Run)
	for at, runs := range a.runs {
		f := a.finals[at.job]
		if f == nil || a.plans[f.Name] == nil || a.plans[f.Name].key() == "" {
			continue
		}
		key := a.plans[f.Name].key()
		for _, r := range runs {
			if r.Ended() {
				keyed[key] = append(keyed[key], r)
			}
		}
	}
	for _, runs := range keyed {
		slices.SortFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Start, y.Start) })
	}
	return keyed
}

// key returns the concurrency key of the plan's jobs.
func (p *Plan) key() string {
	if p.Gate == nil {
		return ""
	}
	return p.Gate.Key
}

// notBefore checks that nothing of a job started before its time, which counts from its
// submission by the clock of the leader.
func (a *account) notBefore(p *Plan, f *Final) {
	if p.Gate.After == 0 || f.Run != nil {
		return
	}
	submitted := a.submitted(p)
	if submitted == history.Never {
		return // submissions reports it
	}
	for _, t := range p.Tasks {
		at := place{f.ID, t.ID}
		for _, r := range a.runs[at] {
			if r.Start < submitted+p.Gate.After-clockGrain && !a.clocksWrong(submitted, r.Start) {
				a.faults.add(Disorder, at.String(), "attempt %d started %v after the submission, and its job starts after %v", r.Attempt, r.Start-submitted, p.Gate.After)
			}
		}
	}
}

// clocksWrong reports whether a fault had set wall clocks at some time of a period.
func (a *account) clocksWrong(from, to time.Duration) bool {
	return slices.ContainsFunc(a.harms, func(h ledger.Harm) bool {
		return h.Worker == clocksHarmed && h.From <= to && (h.Until == 0 || from <= h.Until)
	})
}

// expired checks that nothing of a job that has expired was executed.
func (a *account) expired(f *Final) {
	if !slices.ContainsFunc(f.Tasks, func(t FinalTask) bool { return strings.HasPrefix(t.Error, expiredWith) }) {
		return
	}
	if f.State != "cancelled" {
		a.faults.add(Unexpected, f.ID, "tasks of it have expired, and it is %s", f.State)
	}
	for _, t := range f.Tasks {
		if runs := a.runs[place{f.ID, t.ID}]; len(runs) > 0 {
			a.faults.add(Unexpected, place{f.ID, t.ID}.String(), "executed, and its job has expired because nothing had started: %s", show(runs))
		}
	}
}

// gateEnded reports whether a task was cancelled by the rules of its job's gate: the job has
// expired, or a later one with the key has replaced it.
func (a *account) gateEnded(p *Plan, t *FinalTask) bool {
	if p.Gate == nil || t.State != "cancelled" {
		return false
	}
	if strings.HasPrefix(t.Error, expiredWith) {
		return p.Gate.Expires > 0
	}
	text, replaced := strings.CutPrefix(t.Error, replacedBy)
	by, _, _ := strings.Cut(text, ",")
	if !replaced || a.finals[by] == nil {
		return false
	}
	other := a.plans[a.finals[by].Name]
	return other != nil && other.key() == p.key() && other.Gate.Overlap == "replace"
}

// Gates counts what the checks of gates and schedules had to find something in.
type Gates struct {
	Keys    int // how often a concurrency key went from one job to another
	Waited  int // jobs that had to wait for their time
	Expired int
	Ran     int // ticks with a job
	Skipped int // ticks that were reported as skipped or missed
	Judged  int // ticks between two that one read showed
}

// String formats the counts as one line.
func (g Gates) String() string {
	return fmt.Sprintf("%d handovers of concurrency keys, %d jobs started later, %d expired; %d ticks ran and %d were skipped, %d judged",
		g.Keys, g.Waited, g.Expired, g.Ran, g.Skipped, g.Judged)
}

// CountGates counts them.
func CountGates(r Record) (g Gates) {
	a := newAccount(r)
	for _, runs := range a.keyed() {
		for i := 1; i < len(runs); i++ {
			if runs[i].Job != runs[i-1].Job {
				g.Keys++
			}
		}
	}
	for _, f := range a.finals {
		p := a.plans[f.Name]
		if p == nil || p.Gate == nil {
			continue
		}
		if p.Gate.After > 0 && f.State == "completed" {
			g.Waited++
		}
		if f.State == "cancelled" && slices.ContainsFunc(f.Tasks, func(t FinalTask) bool { return strings.HasPrefix(t.Error, expiredWith) }) {
			g.Expired++
		}
	}
	g.Ran, g.Skipped, g.Judged = newTicks(a).count()
	return g
}
