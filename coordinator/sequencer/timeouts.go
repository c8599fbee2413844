package sequencer

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
	w         *worker
	x         held
	text      string // the timeout
	unstarted bool   // the worker has neither started nor finished it
	drain     bool   // the worker drains, and its deadline has passed
}

// startReportSlack is added to the time that a worker may take to start an
// attempt: it reports a start after 100 ms, and in a new session only after the
// welcome.
const startReportSlack = time.Second

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
			if drained || x.ends {
				list = append(list, overdue{w: w, x: *x, drain: true})
			} else if text := t.exceeded(b, w, x); text != "" {
				list = append(list, overdue{w: w, x: *x, text: text, unstarted: x.started == 0})
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

// exceeded returns the timeout that an attempt has exceeded, or "".
func (t *attemptTimeouts) exceeded(b *batch, w *worker, x *held) string {
	if x.started == 0 {
		return t.startExceeded(b, w, x)
	}
	p := t.policies.of(b.view, x.TaskRef)
	switch {
	case p.runTimeout > 0 && b.at.since(x.started) > p.runTimeout+t.cfg.TimeoutSlack:
		return fmt.Sprintf("timeout: ran longer than %v", p.runTimeout)
	case p.heartbeatTimeout > 0 && b.at.since(x.progressed) > p.heartbeatTimeout+t.cfg.TimeoutSlack:
		return fmt.Sprintf("heartbeat timeout: no progress for more than %v", p.heartbeatTimeout)
	}
	return ""
}

// startExceeded is exceeded for an attempt whose start the worker has not
// reported. An attempt that waits behind others at its worker has not started.
func (t *attemptTimeouts) startExceeded(b *batch, w *worker, x *held) string {
	slack := t.cfg.TimeScale.Scale(startReportSlack)
	waited := b.at.since(x.assigned) - slack
	if waited <= 0 || b.at.since(w.attachedAt) <= slack {
		return "" // most attempts, without a look at their policy
	}
	limit := cmp.Or(t.policies.of(b.view, x.TaskRef).startTimeout, t.cfg.StartTimeout)
	if waited <= limit {
		return ""
	}
	return fmt.Sprintf("start timeout: not started within %v of its assignment", limit)
}

// end ends an attempt that has exceeded a timeout.
func (t *attemptTimeouts) end(b *batch, o overdue) {
	h := fsm.HeldAttempt{AttemptRef: o.x.AttemptRef, Worker: o.w.id}
	t.workers.stop(b, o.w, o.x.AttemptRef, dtaskv1.StopReason_STOP_REASON_TIMED_OUT)
	if o.unstarted {
		t.endUnstarted(b, o.w, h, o.text)
		return
	}
	t.outcomes.fail(b, h, tookMS(b, &o.x), backoff.Failure{Kind: backoff.Timeout}, false, o.text)
}

// tookMS returns how long an attempt has run.
func tookMS(b *batch, x *held) uint32 {
	if x.started == 0 {
		return 0
	}
	return uint32(b.at.since(x.started).Milliseconds()) //nolint:gosec // 49 days are enough
}

// endUnstarted ends an attempt that its worker has not started, and keeps the
// reason in the task's history. Nothing of it has run, and the worker is the
// reason: like a loss, it doesn't count as a retry, and the task is ready again
// immediately. A task that sets a start timeout and excludes timeouts from
// retries fails. The stop that the worker got fences the attempt there (ADR
// 30); its attempt number fences it here.
func (t *attemptTimeouts) endUnstarted(b *batch, w *worker, h fsm.HeldAttempt, text string) {
	if b.view.Stops(h.TaskRef) {
		requeueOrLose(b, h, false) // no new attempt: the task is cancelled
		return
	}
	it := fsm.FailItem{HeldAttempt: h, Next: fsm.NextRetry, Due: b.entry.NowMS(), Error: text}
	p, timeout := t.policies.of(b.view, h.TaskRef), backoff.Failure{Kind: backoff.Timeout}
	if p.startTimeout > 0 && slices.ContainsFunc(p.rules.Except, func(c backoff.Class) bool { return c.Matches(timeout) }) {
		it.Next = fsm.NextFailed
	}
	if b.entry.Fail(it) != fsm.Accepted {
		requeueOrLose(b, h, false)
		return
	}
	counter := &t.cfg.Totals.Requeues
	if it.Next == fsm.NextFailed {
		counter = &t.cfg.Totals.Failures
		t.cfg.Totals.Failed.add(b.view.TaskType(h.TaskRef), backoff.Timeout)
	}
	counter.Add(1)
	t.cfg.Logger.Warn("attempt not started in time", "job_id", uint64(h.Job), "task_id", b.view.Name(h.TaskRef),
		"attempt", h.Attempt, "worker", w.name, "worker_id", uint32(w.id), "err", text, "retry", it.Next == fsm.NextRetry)
}

// drain asks a drained worker to end an attempt, and ends it here if the worker doesn't in time, like
// one that was stopped for an urgent task. An at-most-once attempt that has started is then lost,
// after its lease.
func (t *attemptTimeouts) drain(b *batch, w *worker, a fsm.AttemptRef) {
	x := w.held.find(a)
	if !x.ends {
		w.held.end(x, ending{since: b.at})
		t.workers.keepsPlace(w, x)
		b.stop(w, a, dtaskv1.StopReason_STOP_REASON_DRAINED)
		return
	}
	limit := t.policies.of(b.view, a.TaskRef).killGrace + t.cfg.TimeoutSlack
	if task, _ := b.view.Task(a.TaskRef); task.StartLogged {
		limit = max(limit, t.cfg.Lease)
	}
	if b.at.since(w.held.endings[a].since) <= limit {
		return
	}
	t.workers.stop(b, w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
	if h := (fsm.HeldAttempt{AttemptRef: a, Worker: w.id}); x.preempted {
		requeuePreempted(b, h, tookMS(b, x))
	} else {
		requeueOrLose(b, h, false)
	}
}
