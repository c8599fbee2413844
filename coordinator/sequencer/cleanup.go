package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// heldCleanups are ready cleanup tasks that must wait. A cleanup task becomes
// ready when all ordinary tasks of its job have ended. In the state, a
// cancelled attempt ends immediately; its worker may still be stopping it, and
// it may still write what is about to be cleaned up. So a cleanup task waits
// until no worker holds such an attempt, but no longer than
// Config.StopTimeout: an attempt that can't be stopped must not keep the job
// from ending.
type heldCleanups struct {
	until map[fsm.TaskRef]time.Time // by task: when it is released at the latest
}

func (h *heldCleanups) holds(ref fsm.TaskRef) bool {
	_, ok := h.until[ref]
	return ok
}

// hold reports whether a cleanup task must wait, and holds it in that case.
func (h *heldCleanups) hold(b *batch, ref fsm.TaskRef, isStopping func(fsm.JobID) bool) bool {
	if h.holds(ref) {
		return true
	}
	if !isStopping(ref.Job) {
		return false
	}
	h.until[ref] = b.now.Add(b.cfg.StopTimeout)
	return true
}

// due removes and returns the tasks that need not wait any longer, in order.
func (h *heldCleanups) due(now time.Time, isStopping func(fsm.JobID) bool) (list []fsm.TaskRef) {
	stopping := make(map[fsm.JobID]bool)
	for ref, until := range h.until {
		if _, known := stopping[ref.Job]; !known {
			stopping[ref.Job] = isStopping(ref.Job)
		}
		if !stopping[ref.Job] || !now.Before(until) {
			list = append(list, ref)
			delete(h.until, ref)
		}
	}
	slices.SortFunc(list, func(x, y fsm.TaskRef) int {
		return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Index, y.Index))
	})
	return list
}
