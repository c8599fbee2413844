package fsm

import (
	"slices"
	"strconv"
)

// ends is how a task has ended for its dependents.
func (t *modelTask) ends() string {
	switch {
	case !t.hasEnded():
		return "open"
	case t.state == "completed":
		return "completed"
	case t.state == "cancelled" && t.skipped:
		return "skipped"
	}
	return "failed"
}

// verdict is what the ends of the tasks of a dependency mean for its dependent.
func verdict(c Condition, ends []string, tolerated int) string {
	count := func(end string) (n int) {
		for _, e := range ends {
			if e == end {
				n++
			}
		}
		return n
	}
	open, failed, skipped := count("open") > 0, count("failed"), count("skipped") > 0
	switch {
	case c == WhenCompleted && failed > 0, c == WhenTolerated && failed > tolerated:
		return "impossible"
	case (c == WhenCompleted || c == WhenTolerated) && skipped, c == WhenFailed && !open && failed == 0:
		return "needless"
	case open:
		return "waits"
	}
	return "holds"
}

// verdicts are those of all dependencies of a task, with the ends of all tasks.
func (j *modelJob) verdicts(t *modelTask, ends func(d uint32) string) (list []string) {
	tolerated := j.maxFailures
	if t.final {
		tolerated = 0
	}
	for k, g := range t.groups {
		var of []string
		for _, d := range g {
			of = append(of, ends(d))
		}
		list = append(list, verdict(t.when[k], of, tolerated))
	}
	return list
}

func (j *modelJob) now(d uint32) string { return j.tasks[d].ends() }

// waits counts the dependencies whose condition does not hold.
func (j *modelJob) waits(t *modelTask) (n uint32) {
	for _, v := range j.verdicts(t, j.now) {
		if v != "holds" {
			n++
		}
	}
	return n
}

// follow cancels the tasks that wait for what will not happen, until none is left,
// and readies those that wait for nothing.
func (w *model) follow(j *modelJob) {
	for again := true; again; {
		again = false
		for _, t := range j.tasks {
			list := j.verdicts(t, j.now)
			if t.state == "blocked" && (slices.Contains(list, "impossible") || slices.Contains(list, "needless")) {
				t.skipped = !slices.Contains(list, "impossible")
				w.end(t, "cancelled", "dependency")
				again = true
			}
		}
	}
	w.makeReady(j)
}

// outlives reports whether a task depends, at any distance, on how another ends.
func (j *modelJob) outlives(t *modelTask) bool {
	if slices.Contains(t.when, WhenEnded) || slices.Contains(t.when, WhenFailed) {
		return true
	}
	return slices.ContainsFunc(t.deps, func(d uint32) bool { return j.outlives(j.tasks[d]) })
}

// stopsNow reports whether no new attempt of a task may start.
func (j *modelJob) stopsNow(t *modelTask) bool { return j.stopping && !t.final && !j.outlives(t) }

// covered reports whether a task's failure is expected: a task depends on its end,
// or on that of a task that has to wait for it.
func (j *modelJob) covered(i int) bool {
	for k, t := range j.tasks {
		for n, g := range t.groups {
			if in(g, i) && (t.when[n] == WhenEnded || t.when[n] == WhenTolerated || j.covered(k)) {
				return true
			}
		}
	}
	return false
}

// cancelledBecause returns the tasks that were cancelled other than as skipped.
func (j *modelJob) cancelledBecause(tasks []*modelTask) (list []int) {
	for i, t := range tasks {
		if t.state == "cancelled" && !t.skipped {
			list = append(list, i)
		}
	}
	return list
}

// uncovered returns those whose failure is not expected.
func (j *modelJob) uncovered(tasks []*modelTask) []int {
	return slices.DeleteFunc(j.cancelledBecause(tasks), j.covered)
}

// outcomeOf returns the outcome of the ordinary tasks of a job, or of its cleanup
// tasks; empty while one of them is open.
func (j *modelJob) outcomeOf(tasks []*modelTask, maxFailures int) string {
	failed, byUser, finals := 0, false, false
	for _, t := range tasks {
		switch {
		case !t.hasEnded():
			return ""
		case t.state == "cancelled":
			byUser = byUser || t.byUser
		case t.state != "completed":
			failed++
		}
		finals = t.final
	}
	switch {
	case failed > maxFailures:
		return "failed"
	case byUser:
		return "cancelled"
	case finals && len(j.cancelledBecause(tasks)) > 0:
		return "cancelled"
	case finals || len(j.uncovered(tasks)) == 0:
		return "completed"
	case failed == 0:
		return "cancelled"
	}
	return "failed"
}

// sameCause reports whether a task may have been cancelled for a reason that
// names one of its dependencies.
func (j *modelJob) sameCause(got string, t *modelTask) bool {
	for k, v := range j.verdicts(t, j.now) {
		for _, d := range t.groups[k] {
			name, of := j.tasks[d].name, j.tasks[d].name
			if len(t.groups[k]) > 1 || j.isArray(d) {
				of = name[:slices.Index([]byte(name), '[')]
			}
			switch {
			case v == "impossible" && t.skipped, v == "needless" && !t.skipped:
			case v == "impossible" && t.when[k] == WhenTolerated && j.maxFailures > 0 && !t.final:
				if got == "dependency "+of+" has more than "+strconv.Itoa(j.maxFailures)+" failed tasks" {
					return true
				}
			case v == "impossible":
				if j.tasks[d].ends() == "failed" && got == "dependency "+name+" failed" {
					return true
				}
			case v == "needless" && t.when[k] == WhenFailed:
				if got == "skipped: dependency "+of+" did not fail" {
					return true
				}
			case v == "needless":
				if got == "skipped: dependency "+of+" was skipped" {
					return true
				}
			}
		}
	}
	return false
}

func (j *modelJob) isArray(d uint32) bool {
	return slices.ContainsFunc(j.arrays, func(a []uint32) bool { return slices.Contains(a, d) })
}

// runAgain returns the tasks that a user's request revives, in order, and for the
// others how they end then.
func (j *modelJob) runAgain(asked []uint32) (back map[int]bool, ends map[uint32]string) {
	back, ends = map[int]bool{}, map[uint32]string{}
	for i, t := range j.tasks {
		ends[uint32(i)] = t.ends()
		swept := len(asked) == 0 || t.state == "cancelled" && !t.byUser
		list := j.verdicts(t, func(d uint32) string { return ends[d] })
		impossible, needless := slices.Contains(list, "impossible"), slices.Contains(list, "needless")
		switch {
		case t.unfinished() && !impossible && !needless && (in(asked, i) || swept):
			back[i], ends[uint32(i)] = true, "open"
		case t.state == "blocked" && impossible, t.unfinished() && swept && t.skipped && !needless:
			ends[uint32(i)] = "failed"
		case t.state == "blocked" && needless, t.unfinished() && swept && needless && !impossible:
			ends[uint32(i)] = "skipped"
		}
	}
	return back, ends
}
