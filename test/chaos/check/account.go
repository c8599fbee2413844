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

// A Record is everything known about a run.
type Record struct {
	Plans  []Plan
	Calls  []history.Call
	Finals []Final
	Lines  []ledger.Line
	Harms  []ledger.Harm
}

// Account compares what was acknowledged with what exists and with what was executed.
func Account(r Record) []Fault {
	a := newAccount(r)
	a.submissions()
	a.jobs()
	a.phantoms()
	a.limits()
	a.rates()
	a.meters()
	a.placement()
	a.gpus()
	a.gates()
	a.ticks()
	a.answers()
	return a.faults
}

// account is one comparison.
type account struct {
	faults list
	plans  map[string]*Plan // by name
	byKey  map[string]*Plan
	calls  []history.Call
	finals map[string]*Final // by id
	named  map[string]*Final // by name
	runs   map[place][]ledger.Run
	harms  []ledger.Harm
	ended  map[string]bool // jobs and tasks that a client tried to cancel, by place
}

// place identifies the task that an execution belongs to.
type place struct{ job, task string }

func (p place) String() string { return p.job + "/" + p.task }

func newAccount(r Record) *account {
	a := &account{
		plans: make(map[string]*Plan), byKey: make(map[string]*Plan), calls: r.Calls,
		finals: make(map[string]*Final), named: make(map[string]*Final),
		runs: make(map[place][]ledger.Run), harms: r.Harms, ended: make(map[string]bool),
	}
	for i := range r.Plans {
		a.plans[r.Plans[i].Name], a.byKey[r.Plans[i].Key] = &r.Plans[i], &r.Plans[i]
	}
	for i := range r.Finals {
		f := &r.Finals[i]
		a.finals[f.ID] = f
		if f.Run != nil {
			continue
		}
		if other := a.named[f.Name]; other != nil {
			a.faults.add(Duplicated, f.Name, "jobs %s and %s are one submission", other.ID, f.ID)
		}
		a.named[f.Name] = f
	}
	for _, run := range ledger.Runs(r.Lines) {
		p := place{run.Job, run.Task}
		a.runs[p] = append(a.runs[p], run)
	}
	for _, c := range r.Calls {
		if c.Kind == history.Cancel && c.Verdict != history.Fail {
			a.ended[place{c.Job, c.Task}.String()] = true
		}
	}
	return a
}

// submissions checks that every acknowledged job exists once, under one ID, and that
// definitely refused jobs don't exist.
func (a *account) submissions() {
	ids := make(map[string]string) // key → id
	possible := make(map[string]bool)
	for _, c := range a.calls {
		if c.Kind != history.Submit {
			continue
		}
		if c.Verdict != history.Fail {
			possible[c.Key] = true
		}
		if c.Verdict != history.OK {
			continue
		}
		if first, ok := ids[c.Key]; ok && first != c.Job {
			a.faults.add(Duplicated, c.Key, "one key was acknowledged as job %s and as job %s", first, c.Job)
		} else if !ok && a.finals[c.Job] == nil {
			a.faults.add(Lost, c.Job, "acknowledged (key %s) and missing", c.Key)
		}
		ids[c.Key] = c.Job
	}
	for name, f := range a.named {
		p := a.plans[name]
		switch {
		case p == nil:
			a.faults.add(Unexpected, f.ID, "no client submitted a job named %s", name)
		case !possible[p.Key]:
			a.faults.add(Unexpected, f.ID, "%s exists, although every submission of it definitely failed", name)
		}
	}
}

// jobs checks that each job ended as planned.
func (a *account) jobs() {
	for _, f := range a.finals {
		p := a.plans[f.Name]
		if p == nil {
			continue
		}
		if f.State != "completed" && f.State != "failed" && f.State != "cancelled" {
			a.faults.add(Lost, f.ID, "the job has not ended: %s", f.State)
		}
		if len(f.Tasks) != len(p.Tasks) {
			a.faults.add(Lost, f.ID, "it has %d tasks, want %d", len(f.Tasks), len(p.Tasks))
			continue
		}
		a.job(p, f)
	}
}

func (a *account) job(p *Plan, f *Final) {
	shown := make(map[string]*FinalTask)
	completed := 0
	for i := range f.Tasks {
		shown[f.Tasks[i].ID] = &f.Tasks[i]
		if f.Tasks[i].completed() {
			completed++
		}
	}
	switch {
	case f.Completed > completed:
		a.faults.add(Duplicated, f.ID, "%d completions were counted for %d completed tasks", f.Completed, completed)
	case f.Completed < completed:
		a.faults.add(Lost, f.ID, "%d completions were counted for %d completed tasks", f.Completed, completed)
	}
	for i := range p.Tasks {
		at := place{f.ID, p.Tasks[i].ID}
		t := shown[p.Tasks[i].ID]
		if t == nil {
			a.faults.add(Lost, at.String(), "missing")
			continue
		}
		if !a.gateEnded(p, t) {
			a.ending(at, &p.Tasks[i], t, shown)
		}
		a.executions(at, &p.Tasks[i], t)
	}
}

// poison is the number of lost workers after which a task is dead.
const poison = 5

// ending checks that the task ended as planned, unless it was cancelled.
func (a *account) ending(at place, p *PlannedTask, t *FinalTask, shown map[string]*FinalTask) {
	if !t.terminal() {
		a.faults.add(Lost, at.String(), "not ended: %s, attempt %d", t.State, t.Attempt)
		return
	}
	if t.completed() && !slices.ContainsFunc(a.runs[at], func(r ledger.Run) bool {
		return r.Attempt == t.Attempt && r.Worker == t.Worker && r.Ended() && r.Exit == 0
	}) {
		a.faults.add(Lost, at.String(), "shown as completed by attempt %d on %s, which did not succeed: %s", t.Attempt, t.Worker, show(a.runs[at]))
	}
	if a.ended[at.String()] || a.ended[place{at.job, ""}.String()] {
		if t.State == "cancelled" {
			return // a late cancel changes nothing
		}
	}
	blocked := slices.ContainsFunc(p.After, func(id string) bool { return shown[id] != nil && !shown[id].completed() })
	// An attempt that was lost with its worker may not have begun.
	unended := t.Attempt
	for _, r := range a.runs[at] {
		if r.Ended() {
			unended--
		}
	}
	var want []string
	switch {
	case blocked:
		want = []string{"cancelled"}
	case p.Fails > p.Retries:
		want = []string{"dead"}
	case p.Once:
		want = []string{"completed", "aggregated", "lost"}
	case unended >= poison:
		want = []string{"completed", "aggregated", "dead"}
	default:
		want = []string{"completed", "aggregated"}
	}
	if !slices.Contains(want, t.State) {
		kind := Unexpected
		if want[0] == "completed" {
			kind = Lost
		}
		a.faults.add(kind, at.String(), "state %s, want %s: %s", t.State, strings.Join(want, " or "), show(a.runs[at]))
	}
}

// executions checks that no attempt runs twice or after the last one, that each later
// one has a cause, that tokens grow with attempts, and that nothing runs before its
// dependencies have ended.
func (a *account) executions(at place, p *PlannedTask, t *FinalTask) {
	runs := slices.Clone(a.runs[at])
	slices.SortStableFunc(runs, func(x, y ledger.Run) int { return cmp.Compare(x.Attempt, y.Attempt) })
	if p.Once && len(runs) > 1 {
		a.faults.add(Duplicated, at.String(), "an at-most-once task ran more than once: %s", show(runs))
	}
	for i, r := range runs {
		if r.Attempt > t.Attempt {
			a.faults.add(Unexpected, at.String(), "attempt %d ran, but the last one is %d (%s)", r.Attempt, t.Attempt, t.State)
		}
		if i > 0 && r.Attempt == runs[i-1].Attempt {
			a.faults.add(Duplicated, at.String(), "attempt %d was executed twice: %s", r.Attempt, show(runs))
		} else if i > 0 && r.Token <= runs[i-1].Token {
			a.faults.add(Backwards, at.String(), "attempt %d has token %d, attempt %d had %d", r.Attempt, r.Token, runs[i-1].Attempt, runs[i-1].Token)
		}
		if i > 0 {
			a.cause(at, &runs[i-1], &r, runs)
		}
		for _, dependency := range p.After {
			if !a.endedBy(place{at.job, dependency}, r.Start) {
				a.faults.add(Disorder, at.String(), "attempt %d started before %s had ended", r.Attempt, dependency)
			}
		}
	}
}

// cause checks that an attempt was followed by another one because it failed, or because
// a fault harmed its worker, the worker's links or the command itself. The loss of a
// leader doesn't count: workers continue what they run.
func (a *account) cause(at place, before, r *ledger.Run, runs []ledger.Run) {
	failed := before.Ended() && before.Exit != 0
	if !failed && r.Attempt != before.Attempt && !ledger.Harmed(a.harms, before, r.Start) {
		a.faults.add(Restarted, at.String(), "attempt %d began although nothing had harmed attempt %d on %s: %s", r.Attempt, before.Attempt, before.Worker, show(runs))
	}
}

func (a *account) endedBy(at place, moment time.Duration) bool {
	return slices.ContainsFunc(a.runs[at], func(r ledger.Run) bool { return r.Ended() && r.Exit == 0 && r.End <= moment })
}

// phantoms checks that every execution belongs to a job.
func (a *account) phantoms() {
	known := make(map[place]bool)
	for _, f := range a.finals {
		for _, t := range f.Tasks {
			known[place{f.ID, t.ID}] = true
		}
	}
	for at, runs := range a.runs {
		if !known[at] {
			a.faults.add(Unexpected, at.String(), "executed, but part of no job: %s", show(runs))
		}
	}
}

// show formats executions for messages.
func show(runs []ledger.Run) string {
	if len(runs) == 0 {
		return "no executions"
	}
	var text strings.Builder
	for _, r := range runs {
		end := "no end"
		if r.Ended() {
			end = fmt.Sprintf("%v exit %d", r.End, r.Exit)
		}
		fmt.Fprintf(&text, "[attempt %d on %s, token %d: %v to %s]", r.Attempt, r.Worker, r.Token, r.Start, end)
	}
	return text.String()
}
