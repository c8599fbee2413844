package api

import (
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// estimate adds when a pending task is expected to start, unless it is about to be assigned,
// or does not wait for a worker alone.
func (x *explainer) estimate(c *sequencer.Capacity) {
	if c.Waits {
		x.estimateWait(c)
		return
	}
	if x.runs == nil || x.soft.Estimate == nil || c.Fits || x.soft.EndsOn != 0 || x.soft.Paused || x.soft.HeldUntil > 0 {
		return
	}
	got := x.soft.Estimate(x.runs.of)
	e := &dtaskv1.StartEstimate{Code: got.Doubt}
	switch {
	case got.Doubt == "":
		e.Code = "expected"
		e.From, e.To = x.soft.NowMS+got.From.Milliseconds(), x.soft.NowMS+got.To.Milliseconds()
	case got.Task.Job != 0:
		// The task may belong to a job that the caller must not know of.
		if job, ok := x.st.Job(got.Task.Job); ok && sees(x.caller, job.Header) {
			e.Job, e.Task = formatJobID(job.ID), x.st.Name(got.Task)
		}
	}
	if own := slices.Sorted(slices.Values(x.runs.of(x.at))); len(own) >= minRunTimes {
		e.P50Ms, e.P90Ms = quantile(own, 50).Milliseconds(), quantile(own, 90).Milliseconds()
	}
	e.Text = estimateTexts[e.GetCode()](e, x.soft.NowMS)
	x.resp.Estimate = e
}

// minRunTimes is how many run times must be known to show their quantiles.
const minRunTimes = 5

// quantile returns the least of some sorted values that is at least as large as a
// percentage of them.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// unitOf returns the first task of the array of a task, or the task itself.
func unitOf(st *fsm.State, ref fsm.TaskRef) fsm.TaskRef {
	if a, ok := st.ArrayTask(ref); ok {
		ref.Index = a.First
	}
	return ref
}
