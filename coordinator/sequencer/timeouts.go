package sequencer

import (
	"fmt"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler/backoff"
)

// attemptTimeouts ends attempts that have exceeded a timeout, or the deadline
// of a drain, and that their worker has not ended itself. Attempts are few
// beside tasks: a scan of all of them at each sweep is cheaper, and simpler,
// than a timer for each.
type attemptTimeouts struct {
	cfg      *Config
	workers  *workerTable
	policies *policyTable
	outcomes *outcomes
}

// overdue is an attempt that must end.
type overdue struct {
	w     *worker
	x     held
	text  string // the timeout; "": the worker has neither started nor finished it
	drain bool   // the worker drains, and its deadline has passed
}

func (t *attemptTimeouts) sweep(b *batch) {
	var list []overdue
	for _, w := range t.workers.byID {
		if w.session == nil {
			continue // its attempts are checked when it reconnects, or end with it
		}
		drained := drainExpired(b, w.id)
		for i := range w.held.list {
			x := &w.held.list[i]
			if x.stopped {
				continue
			}
			if drained || x.drained != 0 {
				list = append(list, overdue{w: w, x: *x, drain: true})
			} else if text, over := t.exceeded(b, x); over {
				list = append(list, overdue{w: w, x: *x, text: text})
			}
		}
	}
	slices.SortFunc(list, func(a, b overdue) int { return compareAttempts(a.x.AttemptRef, b.x.AttemptRef) })
	for _, o := range list {
		switch {
		case b.full():
			return
		case o.drain:
			t.drain(b, o.w, o.x.AttemptRef)
		default:
			t.end(b, o)
		}
	}
}

// exceeded reports whether an attempt has exceeded a timeout, and which.
func (t *attemptTimeouts) exceeded(b *batch, x *held) (text string, over bool) {
	if x.started == 0 {
		return "", b.at.since(x.assigned) > t.cfg.StartTimeout
	}
	p := t.policies.of(b.view, x.TaskRef)
	switch {
	case p.runTimeout > 0 && b.at.since(x.started) > p.runTimeout+t.cfg.TimeoutSlack:
		return fmt.Sprintf("timeout: ran longer than %v", p.runTimeout), true
	case p.heartbeatTimeout > 0 && b.at.since(x.progressed) > p.heartbeatTimeout+t.cfg.TimeoutSlack:
		return fmt.Sprintf("heartbeat timeout: no progress for more than %v", p.heartbeatTimeout), true
	}
	return "", false
}

// end ends an attempt that has exceeded a timeout.
func (t *attemptTimeouts) end(b *batch, o overdue) {
	h := fsm.HeldAttempt{AttemptRef: o.x.AttemptRef, Worker: o.w.id}
	t.workers.stop(b, o.w, o.x.AttemptRef, dtaskv1.StopReason_STOP_REASON_TIMED_OUT)
	if o.text == "" {
		requeueOrLose(b, h, false)
		return
	}
	took := uint32(b.at.since(o.x.started).Milliseconds()) //nolint:gosec // 49 days are enough
	t.outcomes.fail(b, h, took, backoff.Failure{Kind: backoff.Timeout}, false, o.text)
}

// drain asks a drained worker to end an attempt, and ends it here if the worker
// doesn't in time. An at-most-once attempt that has started is then lost, after
// its lease.
func (t *attemptTimeouts) drain(b *batch, w *worker, a fsm.AttemptRef) {
	x := w.held.find(a)
	if x.drained == 0 {
		x.drained = b.at
		b.stop(w, a, dtaskv1.StopReason_STOP_REASON_DRAINED)
		return
	}
	limit := t.policies.of(b.view, a.TaskRef).killGrace + t.cfg.TimeoutSlack
	if task, _ := b.view.Task(a.TaskRef); task.StartLogged {
		limit = max(limit, t.cfg.Lease)
	}
	if b.at.since(x.drained) > limit {
		t.workers.stop(b, w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
		requeueOrLose(b, fsm.HeldAttempt{AttemptRef: a, Worker: w.id}, false)
	}
}
