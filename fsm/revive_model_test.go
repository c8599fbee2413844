package fsm

import (
	"fmt"
	"slices"
)

// remember keeps an ended attempt: the first 49, and the last.
func (w *model) remember(t *modelTask, why string) {
	if len(t.past) == 50 {
		t.past = t.past[:49]
	}
	t.past = append(slices.Clip(t.past), Attempt{t.attempt, WorkerID(t.worker), t.started, w.now, why})
}

// asked checks the requested indexes.
func (j *modelJob) asked(list []uint32, ok func(t *modelTask) bool) string {
	for n, i := range list {
		switch {
		case int(i) >= len(j.tasks):
			return "task not found"
		case n > 0 && i <= list[n-1]:
			return "malformed"
		case !ok(j.tasks[i]):
			return "wrong state"
		}
	}
	return "accepted"
}

func (t *modelTask) unfinished() bool { return t.hasEnded() && t.state != "completed" }

func in(list []uint32, i int) bool {
	for _, x := range list {
		if int(x) == i {
			return true
		}
	}
	return false
}

// back returns the tasks that run again, cleanup tasks included, and how the
// others end then.
func (j *modelJob) back(asked []uint32) (back map[int]bool, ends map[uint32]string) {
	back, ends = j.runAgain(asked)
	ordinary := false
	for i, t := range j.tasks {
		ordinary = ordinary || ends[uint32(i)] != t.ends() && !t.final
	}
	for i, t := range j.tasks {
		if t.final && ordinary {
			back[i] = t.hasEnded() // cleanup runs again
			ends[uint32(i)] = "open"
		}
	}
	return back, ends
}

func (w *model) revive(op *Revive) string {
	j := w.sealed(op.Job)
	switch {
	case j == nil:
		return "job not found"
	case w.unmet(j, op.Precondition) != "":
		return w.unmet(j, op.Precondition)
	case j.outcome != "" && !j.hasEnded():
		return "wrong state"
	}
	if r := j.asked(op.Tasks, (*modelTask).unfinished); r != "accepted" {
		return r
	}
	back, ends := j.back(op.Tasks)
	n := 0
	for i, t := range j.tasks {
		if in(op.Tasks, i) && !back[i] {
			return "wrong state"
		}
		if ends[uint32(i)] != t.ends() || back[i] {
			n++
		}
	}
	if n == 0 {
		return "wrong state"
	}
	needs, ok := w.needsAfterRevival(j)
	if !ok {
		return "needed job did not end as required"
	}
	again := j.hasEnded() && j.gate != "" && counts(j.header)
	if again && len(w.sharing(j.header)) > mayRun(j.header)+98 {
		return refusedKey
	}
	j.needs = needs
	if j.hasEnded() && j.started == 0 {
		j.state = "pending"
	} else if j.hasEnded() {
		j.state = "running"
	}
	j.stopping, j.ended, j.revived = false, 0, w.now
	for i, t := range j.tasks {
		if ends[uint32(i)] != t.ends() && !t.final {
			j.outcome = ""
		}
	}
	if again && j.outcome == "" {
		j.gate = "closed"
	}
	if j.outcome == "" || j.outcome == "completed" {
		j.err, j.errOf = "", nil
	}
	for i, t := range j.tasks {
		if end := ends[uint32(i)]; end != "open" && end != t.ends() && t.state != "cancelled" {
			w.end(t, "cancelled", "dependency")
		}
		if t.state == "cancelled" {
			t.byUser = t.byUser && ends[uint32(i)] != "skipped"
			t.skipped = ends[uint32(i)] == "skipped"
		}
		if !back[i] {
			continue
		}
		t.result, t.outSHA, t.outSize, t.accepted = "", "", 0, 0
		t.reused = ""
		t.state, t.err, t.ended, t.failures, t.losses, t.begun, t.byUser = "blocked", "", 0, 0, 0, false, false
		t.skipped = false
		if n := len(t.past); n > 0 {
			t.err = t.past[n-1].Error
		}
	}
	for _, t := range j.tasks {
		for _, v := range j.verdicts(t, j.now) {
			if t.state == "cancelled" && !t.byUser && (v == "impossible" && !t.skipped || v == "needless" && t.skipped) {
				t.err = "dependency"
			}
		}
	}
	for _, t := range j.tasks {
		kept := j.outcome == "failed" || j.outcome == "cancelled"
		if j.err == "" && !kept && t.unfinished() && t.state != "cancelled" && (t.final || j.failures() > j.maxFailures) {
			j.err = j.failureOf(t, t.err)
		}
	}
	w.changed(j, op.Precondition, 0)
	w.makeReady(j)
	w.revivedJobs = append(w.revivedJobs, fmt.Sprint(j.id))
	w.settle(j)
	return "accepted"
}

func (w *model) purge(op *Purge) string {
	j := w.sealed(op.Job)
	if j == nil {
		return "job not found"
	}
	if r := w.unmet(j, op.Precondition); r != "" {
		return r
	}
	if r := j.asked(op.Tasks, func(t *modelTask) bool { return t.state == "dead" }); r != "accepted" {
		return r
	}
	n := uint32(0)
	for i, t := range j.tasks {
		if t.state == "dead" && (len(op.Tasks) == 0 || in(op.Tasks, i)) {
			t.state = "failed"
			n++
		}
	}
	if n == 0 {
		return "wrong state"
	}
	w.changed(j, op.Precondition, n)
	return "accepted"
}
