package fsm

import (
	"errors"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// gate keeps the ordinary tasks of a job blocked until the leader opens it: see
// docs/adr/0047-gates.md. The leader decides when, by its clock and by what workers still stop.
// The state machine refuses to open it early by the time stamp of the entry, or while as many
// jobs with the key of the job as may run do. Only a retry of a job with a key closes its gate
// again.
type gate uint8

const (
	gateNone gate = iota // as for all jobs of earlier builds
	gateClosed
	gateOpened
	numGates
)

// maxGateMS bounds the times and durations of a gate: sums of them do not overflow.
const maxGateMS = 1 << 60

// IsGated reports whether a job with this header has a gate, or expires: SealGated makes it
// exist.
func IsGated(h *dtaskv1.JobHeader) bool {
	return gateOf(h) != gateNone || h.GetExpiresMs() != 0 || h.GetConcurrency() != nil
}

// gateOf is the gate of a job that begins to exist.
func gateOf(h *dtaskv1.JobHeader) gate {
	if h.GetStartAtMs() != 0 || h.GetStartAfterMs() != 0 || ConcurrencyKey(h) != "" {
		return gateClosed
	}
	return gateNone
}

// checkGate reports whether the times and the concurrency of a header may be those of a job.
func checkGate(h *dtaskv1.JobHeader) bool {
	for _, ms := range []int64{h.GetStartAtMs(), h.GetStartAfterMs(), h.GetExpiresMs()} {
		if ms < 0 || ms > maxGateMS {
			return false
		}
	}
	return checkConcurrency(h.GetConcurrency())
}

// startMS is when a job may start that was submitted at a time; 0 = immediately.
func startMS(h *dtaskv1.JobHeader, submitted int64) int64 {
	at := h.GetStartAtMs()
	if after := h.GetStartAfterMs(); after > 0 {
		at = max(at, submitted+after)
	}
	return at
}

// expiryMS is when a job expires that was submitted, and last revived, at these times; 0 =
// never.
func expiryMS(h *dtaskv1.JobHeader, submitted, revived int64) int64 {
	if h.GetExpiresMs() <= 0 || h.GetExpiresMs() > maxGateMS {
		return 0
	}
	return max(submitted, revived, startMS(h, submitted)) + h.GetExpiresMs()
}

// StartMS is the time before which no task of the job is ready; 0 = none is set.
func (j *Job) StartMS() int64 { return startMS(j.Header, j.SubmittedMS) }

// ExpiryMS is the time at which the job is cancelled if none of its tasks has started; 0 =
// never.
func (j *Job) ExpiryMS() int64 {
	if j.StartedMS != 0 || j.State.Terminal() || j.Outcome != 0 {
		return 0
	}
	return expiryMS(j.Header, j.SubmittedMS, j.RevivedMS)
}

// gated reports whether no ordinary task of a job may be ready because its gate is closed.
// Cleanup tasks of a job that a user cancelled do not wait.
func (j *job) gated() bool { return j.gate == gateClosed && j.outcome == 0 }

// enter readies a job that waits for no other one, unless its gate is closed.
func (s *State) enter(j *job, fx *Effects) {
	if j.gated() {
		fx.gated(j.id)
		return
	}
	s.readyFirst(j, fx)
}

// Seal makes an uploaded job exist, by the operation that its header requires.
func (b *EntryBuilder) Seal(o SealUpload) Reason {
	if j := b.s.jobs.get(o.Job); j != nil && IsGated(j.header) {
		return b.Do((*SealGated)(&o))
	}
	return b.Do(&o)
}

// gate codes the gate of a job, as the last field of a frame: jobs without one don't have
// it, as in earlier builds.
func (c *coder) gate(g *gate) {
	if *g == gateNone && (c.d == nil || len(c.d.b) == 0) {
		return
	}
	number(c, g)
	if *g == gateNone || *g >= numGates {
		c.fail(errors.New("invalid gate"))
	}
}

// checkGated checks that the tasks of a job with a closed gate are not ready.
func (j *job) checkGated() error {
	switch {
	case j.gate != gateNone && (j.state == JobUploading || gateOf(j.header) == gateNone):
		return errors.New("has a gate that it must not have")
	case j.gated() && j.counts[Pending]+j.counts[Scheduled]+j.counts[Assigned] > 0:
		return errors.New("has ready tasks behind a closed gate")
	}
	return nil
}
