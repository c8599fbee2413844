package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

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
	return h.GetStartAtMs() < 0 || h.GetStartAfterMs() < 0 || h.GetExpiresMs() < 0
}

func hasTimes(h *dtaskv1.JobHeader) bool { return h.GetStartAtMs() != 0 || h.GetStartAfterMs() != 0 }

func (w *model) sealGated(op *SealGated) string {
	j, r := w.upload(op.Job)
	if r == "" && len(j.tasks) == j.total && (!hasTimes(j.header) && j.header.GetExpiresMs() == 0 || badTimes(j.header)) {
		return "malformed"
	}
	if r == "" && hasTimes(j.header) {
		j.gate = "closed"
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
