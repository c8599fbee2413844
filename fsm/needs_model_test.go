package fsm

import (
	"maps"
	"slices"
	"strconv"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// modelNeed is a job that another one needs.
type modelNeed struct {
	job  uint64
	when dtaskv1.Condition
	end  string // how it ended; empty = it had not
}

// verdict is what the needed job means: waits, holds, impossible or needless.
func (n modelNeed) verdict() string {
	completed := n.end == "completed"
	switch n.when {
	case dtaskv1.Condition_CONDITION_ENDED:
		if n.end != "" {
			return "holds"
		}
	case dtaskv1.Condition_CONDITION_FAILED:
		if completed {
			return "needless"
		} else if n.end != "" {
			return "holds"
		}
	default:
		if completed {
			return "holds"
		} else if n.end != "" {
			return "impossible"
		}
	}
	return "waits"
}

// badNeeds reports whether a header has needs that no job may have.
func badNeeds(h *dtaskv1.JobHeader, id uint64) bool {
	for _, n := range h.GetNeeds() {
		if n.GetJob() == 0 || n.GetJob() >= id || n.GetCondition() == dtaskv1.Condition_CONDITION_TOLERATED || n.GetCondition() > 4 {
			return true
		}
		if n.GetEndedAs() != 0 && (n.GetEndedAs() < dtaskv1.JobState_JOB_STATE_COMPLETED || n.GetEndedAs() > dtaskv1.JobState_JOB_STATE_CANCELLED) {
			return true
		}
	}
	return false
}

// learnNeeds finds out how the needed jobs ended, and reports whether all are
// known.
func (w *model) learnNeeds(j *modelJob, h *dtaskv1.JobHeader) (known bool) {
	j.needs = nil
	for _, n := range h.GetNeeds() {
		need := modelNeed{job: n.GetJob(), when: n.GetCondition()}
		x := w.sealed(JobID(need.job))
		switch {
		case x != nil && x.hasEnded():
			need.end = x.state
		case x == nil && n.GetEndedAs() == 0:
			return false
		case x == nil:
			need.end = map[dtaskv1.JobState]string{3: "completed", 4: "failed", 5: "cancelled"}[n.GetEndedAs()]
		}
		j.needs = append(j.needs, need)
	}
	return true
}

// waitsForJobs reports whether a job may not start because of other jobs.
func (j *modelJob) waitsForJobs() bool {
	for _, n := range j.needs {
		if n.verdict() != "holds" {
			return j.outcome == ""
		}
	}
	return false
}

// decide readies or ends a job if the jobs that it needs have ended.
func (w *model) decide(j *modelJob) {
	for _, end := range []struct{ verdict, state, text string }{{"impossible", "failed", ""}, {"needless", "completed", "skipped: "}} {
		for _, n := range j.needs {
			if n.verdict() == end.verdict {
				why := end.text + "needed job " + strconv.FormatUint(n.job, 10) + " " + map[string]string{"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}[n.end]
				for _, t := range j.tasks {
					if !t.hasEnded() {
						w.end(t, "cancelled", why)
						t.skipped = end.state == "completed"
					}
				}
				j.stopping, j.err, j.outcome = true, why, end.state
				w.settle(j)
				return
			}
		}
	}
	w.makeReady(j)
}

// tellEnd tells other jobs that a job has ended, those that it ends as well
// next.
func (w *model) tellEnd(j *modelJob) {
	w.untold = append(w.untold, j)
	if len(w.untold) > 1 {
		return
	}
	for len(w.untold) > 0 {
		x := w.untold[0]
		for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
			y, told := w.jobs[id], false
			if y.state == "uploading" {
				continue
			}
			for k, n := range y.needs {
				if n.job == x.id && n.verdict() != "holds" {
					y.needs[k].end, told = x.state, true
				}
			}
			if told && y.outcome == "" {
				w.decide(y)
			}
		}
		w.untold = w.untold[1:]
	}
}

// needsAfterRevival returns what a revived job knows of the jobs that it needs;
// ok is false if it can't run.
func (w *model) needsAfterRevival(j *modelJob) (needs []modelNeed, ok bool) {
	for _, n := range j.needs {
		if n.verdict() != "holds" {
			if x := w.sealed(JobID(n.job)); x != nil {
				n.end = ""
				if x.hasEnded() {
					n.end = x.state
				}
			}
			if v := n.verdict(); v == "impossible" || v == "needless" {
				return nil, false
			}
		}
		needs = append(needs, n)
	}
	return needs, true
}
