package api

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// showGate adds what keeps a job with a closed gate from starting.
func showGate(shown *dtaskv1.Job, j *fsm.Job) {
	if !j.Gated {
		return
	}
	if len(j.WaitsFor) > 0 {
		shown.WaitsFor = make([]string, 0, len(j.WaitsFor))
	}
	for _, id := range j.WaitsFor {
		shown.WaitsFor = append(shown.WaitsFor, formatJobID(id))
	}
	if len(j.WaitsFor) == 0 {
		shown.ScheduledUntil = j.StartMS()
	}
}

// checkStart refuses a job whose deadline, which counts from the submission, ends it before it may
// start; unless the clock may be wrong. Package spec does it for a delay from the submission.
func (s *Server) checkStart(h *dtaskv1.JobHeader) error {
	start, deadline := h.GetStartAtMs(), h.GetDeadlineMs()
	leader := s.cfg.Leader()
	if start == 0 || deadline == 0 || start-s.cfg.Wall().UnixMilli() < deadline || leader == nil || !leader.ClockAgrees() {
		return nil
	}
	what := fmt.Sprintf("%s is not before the deadline of %s, which counts from the submission",
		time.UnixMilli(start).UTC().Format(time.RFC3339), wholeDuration(time.Duration(deadline)*time.Millisecond))
	return spec.Faults{{Where: "job.start_at", What: what, Do: "write a longer deadline, or an earlier start_at"}}
}

// explainOpenKey explains the rejection of a job because of others with its concurrency key,
// by the current state.
func (s *Server) explainOpenKey(encoded []byte, rejection error) error {
	h := new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(encoded, h); err != nil {
		return rejection
	}
	return s.openKey(h)
}

func (s *Server) openKey(h *dtaskv1.JobHeader) error {
	var open []fsm.JobID
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { open = st.KeyJobs(fsm.ConcurrencyKey(h)) })
	if len(open) == 0 { // they have ended meanwhile
		return &Error{Kind: KindBusy, Message: "the concurrency key was being released", RetryAfter: retryAfter}
	}
	c := h.GetConcurrency()
	rule := overlapName(fsm.Overlap(max(c.GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP))) //nolint:gosec // known
	have := " have"
	if len(open) == 1 {
		have = " has"
	}
	return conflict("%s with the concurrency key %s%s not ended (%s), and its rule for overlaps is %s: wait for them, or cancel them",
		plural(int64(len(open)), "job"), quote(c.GetKey()), have, firstJobs(open), rule)
}

// firstJobs names the first of some jobs.
func firstJobs(list []fsm.JobID) string {
	ids := make([]string, 0, maxExplainedNames)
	for _, id := range list[:min(len(list), maxExplainedNames)] {
		ids = append(ids, formatJobID(id))
	}
	return strings.Join(ids, ", ")
}

// gate explains what a job with a closed gate waits for.
func (x *explainer) gate() {
	start := x.job.StartMS()
	if start > x.soft.NowMS {
		x.add(&dtaskv1.Reason{Code: "job_start_time", Until: start})
	}
	c := x.job.Header.GetConcurrency()
	for i, id := range x.job.WaitsFor {
		if i == maxExplainedNames {
			x.add(&dtaskv1.Reason{Code: "waits_for_more_jobs", Name: c.GetKey(), Want: int64(len(x.job.WaitsFor) - i), Unit: "jobs"})
			break
		}
		x.add(&dtaskv1.Reason{Code: "waits_for_key", Name: c.GetKey(), Job: formatJobID(id)})
	}
	if len(x.resp.GetReasons()) == 0 {
		// The leader opens the gate as soon as nothing of the jobs before it runs.
		x.add(&dtaskv1.Reason{Code: "job_starts", Name: c.GetKey()})
	}
}
