package api

import (
	"fmt"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// awaitsWorker returns why a task is not assigned although a worker is idle: it waits
// for the one that its affinity chooses. It is nil if it does not.
func (x *explainer) awaitsWorker(c *sequencer.Capacity) *dtaskv1.Reason {
	if !c.Waits {
		return nil
	}
	r := x.keyReason("waits_for_key_worker", c.Affinity)
	if r != nil {
		r.Until = c.Affinity.Until
	}
	return r
}

// estimateWait adds when a task starts that waits for the worker of its key while others are
// idle: as soon as that is free, and at the end of the wait otherwise.
func (x *explainer) estimateWait(c *sequencer.Capacity) {
	if c.Affinity.Until == 0 || x.soft.Paused || x.soft.HeldUntil > 0 {
		return
	}
	e := &dtaskv1.StartEstimate{Code: "expected", From: x.soft.NowMS, To: max(c.Affinity.Until, x.soft.NowMS)}
	e.Text = estimateTexts[e.GetCode()](e, x.soft.NowMS)
	x.resp.Estimate = e
}

// spilled adds that an assigned task is not on the worker that its affinity chooses.
func (x *explainer) spilled() {
	if r := x.keyReason("spilled", x.soft.Spilled); r != nil {
		x.add(r)
	}
}

// keyReason returns a reason with the worker that an affinity chooses; nil without one that
// the caller may see.
func (x *explainer) keyReason(code string, a sequencer.Affinity) *dtaskv1.Reason {
	w := x.st.Worker(a.Worker)
	if w == nil || !x.sees(a.Worker) {
		return nil
	}
	return &dtaskv1.Reason{Code: code, Worker: w.Name, Free: int64(a.Permille), Total: 1000, Unit: "permille"} //nolint:gosec // far below 2^63
}

// loadText returns a load as users read it, such as 1.25.
func loadText(r *dtaskv1.Reason) string {
	return fmt.Sprintf("load %d.%02d", r.GetFree()/1000, r.GetFree()%1000/10)
}
