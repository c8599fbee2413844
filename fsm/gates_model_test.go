package fsm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const refusedKey = "an earlier job with the concurrency key has not ended"

// starts is the time before which a job does not start; 0 = none.
func (j *modelJob) starts() int64 {
	at := j.header.GetStartAtMs()
	if after := j.header.GetStartAfterMs(); after > 0 && j.submitted+after > at {
		at = j.submitted + after
	}
	return at
}

// behindGate reports whether the gate keeps the ordinary tasks of a job from being ready.
func (j *modelJob) behindGate() bool { return j.gate == "closed" && j.outcome == "" }

func badTimes(h *dtaskv1.JobHeader) bool {
	c := h.GetConcurrency()
	return h.GetStartAtMs() < 0 || h.GetStartAfterMs() < 0 || h.GetExpiresMs() < 0 ||
		c != nil && (c.GetKey() == "" || c.GetKey()[0] == 0 || c.GetLimit() > 1000 || c.GetOverlap() < 0 || c.GetOverlap() > 5)
}

// counts reports whether a job with this header is counted with others that have its key.
func counts(h *dtaskv1.JobHeader) bool {
	return h.GetConcurrency() != nil && h.GetConcurrency().GetOverlap() != dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_ALLOW
}

// sharing returns the jobs that have the key of a header and have not ended, the oldest
// first.
func (w *model) sharing(h *dtaskv1.JobHeader) (list []*modelJob) {
	if !counts(h) {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		j := w.jobs[id]
		if j.state != "uploading" && !j.hasEnded() && j.gate != "" && counts(j.header) &&
			j.header.GetConcurrency().GetKey() == h.GetConcurrency().GetKey() && j.header.GetNamespace() == h.GetNamespace() {
			list = append(list, j)
		}
	}
	return list
}

func mayRun(h *dtaskv1.JobHeader) int { return int(cmp.Or(h.GetConcurrency().GetLimit(), 1)) }

// admits applies the rule for overlaps to a job that is to exist.
func (w *model) admits(h *dtaskv1.JobHeader, rule Overlap, id uint64) bool {
	open, limit := w.sharing(h), mayRun(h)
	n := len(open)
	switch {
	case rule == OverlapAllow || n < limit:
		return true
	case rule <= OverlapSkip, rule == OverlapWait && n > limit, n > limit+98:
		return false
	case rule == OverlapReplace:
		for _, j := range slices.Backward(open[:n-limit+1]) {
			w.endJob(JobID(j.id), "cancelled", fmt.Sprintf("replaced by job %d, which has the same concurrency key", id), false)
		}
	}
	return true
}

// startsClosed reports whether a job with this header has a gate.
func startsClosed(h *dtaskv1.JobHeader) bool {
	return h.GetStartAtMs() != 0 || h.GetStartAfterMs() != 0 || counts(h)
}

func (w *model) sealGated(op *SealGated) string {
	j, r := w.upload(op.Job)
	if r == "" && len(j.tasks) == j.total {
		h := j.header
		if !startsClosed(h) && h.GetExpiresMs() == 0 && h.GetConcurrency() == nil || badTimes(h) {
			return "malformed"
		}
		if startsClosed(h) {
			j.gate = "closed"
		}
	}
	r = w.jobSeal((*SealUpload)(op))
	if r != "accepted" && j != nil {
		j.gate = ""
	}
	return r
}

func (w *model) openGate(op *OpenGate) string {
	j := w.sealed(op.Job)
	switch {
	case j == nil:
		return "job not found"
	case !j.behindGate() || j.waitsForJobs() || w.now < j.starts():
		return "wrong state"
	}
	running := 0
	for _, x := range w.sharing(j.header) {
		if x.gate == "open" {
			running++
		}
	}
	if running >= mayRun(j.header) {
		return refusedKey
	}
	j.gate = "open"
	w.makeReady(j)
	return "accepted"
}

func (w *model) expireJob(op *ExpireJob) string {
	j := w.sealed(op.Job)
	switch {
	case j == nil:
		return "job not found"
	case j.outcome != "":
		return "already ended"
	case len(op.Reason) > maxText:
		return "malformed"
	case j.header.GetExpiresMs() <= 0 || j.started != 0 || w.now < max(j.submitted, j.revived, j.starts())+j.header.GetExpiresMs():
		return "wrong state"
	}
	for _, t := range j.tasks {
		if !t.hasEnded() {
			w.end(t, "cancelled", op.Reason)
		}
	}
	j.stopping, j.err, j.outcome = true, op.Reason, "cancelled"
	w.settle(j)
	return "accepted"
}
