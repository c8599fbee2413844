package check

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// Rules are what tasks require of the labels of a worker, as job files have it: by label, a
// list of values one of which it has, or a list of values with ! before each, none of which it
// has, or * for any value.
type Rules map[string][]string

// allow reports whether a worker has the labels that the rules require. It is written a second
// time here, so that an error in the scheduler's is found.
func (r Rules) allow(labels map[string]string) bool {
	for label, values := range r {
		value, has := labels[label]
		var fits bool
		switch {
		case len(values) == 1 && values[0] == "*":
			fits = has
		case strings.HasPrefix(values[0], "!"):
			fits = !has || !slices.Contains(values, "!"+value)
		default:
			fits = has && slices.Contains(values, value)
		}
		if !fits {
			return false
		}
	}
	return true
}

// placement checks that each task was executed by workers with the labels that it and its
// queue require. The ledger has the labels of the process that executed it.
func (a *account) placement() {
	for rules, r := range a.placed() {
		if !rules.allow(r.Labels) {
			a.faults.add(Unexpected, place{r.Job, r.Task}.String(), "executed by a worker with labels %v, and %v is required: %s",
				r.Labels, rules, show([]ledger.Run{*r}))
		}
	}
}

// placed iterates over the executions of tasks that require labels, or whose queue does.
func (a *account) placed() iter.Seq2[Rules, *ledger.Run] {
	return func(yield func(Rules, *ledger.Run) bool) {
		for _, f := range a.finals {
			p := a.plans[f.Name]
			if p == nil {
				continue
			}
			for _, t := range p.Tasks {
				runs := a.runs[place{f.ID, t.ID}]
				for _, rules := range []Rules{p.Pool, t.Require} {
					for i := range runs {
						if len(rules) > 0 && !yield(rules, &runs[i]) {
							return
						}
					}
				}
			}
		}
	}
}

// Scheduled counts what the checks of rates, quotas, placement and GPUs had to find something in, and
// what the other checks prove only if it happens.
type Scheduled struct {
	Rated     int // starts under a limit with a rate
	Metered   int // starts in a queue with a quota on a resource
	Full      int // of them, those that used the quota up
	Placed    int // starts where labels are required
	GPUs      int // starts with GPUs, or with parts of them
	Preempted int // attempts that ended for urgent tasks
}

// String formats the counts as one line.
func (s Scheduled) String() string {
	return fmt.Sprintf("%d starts compared with rates, %d with quotas on resources (%d used one up), %d with required labels, %d with GPUs; %d attempts preempted",
		s.Rated, s.Metered, s.Full, s.Placed, s.GPUs, s.Preempted)
}

// CountScheduled counts them.
func CountScheduled(r Record) (n Scheduled) {
	a := newAccount(r)
	for _, l := range a.rated() {
		n.Rated += len(l.assigned)
	}
	for _, m := range a.metered() {
		for _, takes := range m.starts() {
			n.Metered++
			if takes == m.quota {
				n.Full++
			}
		}
	}
	for range a.placed() {
		n.Placed++
	}
	for _, runs := range a.onGPUs() {
		n.GPUs += len(runs)
	}
	for _, f := range r.Finals {
		for i := range f.Tasks {
			n.Preempted += f.Tasks[i].Preempted
		}
	}
	return n
}
