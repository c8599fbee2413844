package sequencer

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/fsm"
)

// maxReconnectDelay bounds the extra time that AllowReconnectsUntil gives a
// worker.
const maxReconnectDelay = 30 * time.Second

// liveness marks workers down that were not in contact for the liveness
// timeout.
type liveness struct {
	cfg     *Config
	workers *workerTable

	// nextCheck is a time before which no worker can time out: contact only
	// moves deadlines later. So thousands of workers are scanned once per
	// liveness timeout, not at each sweep.
	nextCheck time.Time
	guardedAt time.Time // when the mass-failure guard last extended deadlines

	start        time.Time
	reconnectsBy atomic.Int64 // ns since start; 0: no worker was deferred
}

// checkBy makes sure that workers are scanned at a time, or before.
func (l *liveness) checkBy(at time.Time) {
	if at.Before(l.nextCheck) {
		l.nextCheck = at
	}
}

// sweep marks workers down in the order of their ids, so that the log entry
// doesn't depend on the order of the map.
func (l *liveness) sweep(b *batch) {
	if b.now.Before(l.nextCheck) {
		return
	}
	var silent, gone []*worker // with and without a session
	l.nextCheck = b.now.Add(l.cfg.LivenessTimeout)
	for _, w := range l.workers.byID {
		deadline := w.deadline
		if w.session != nil {
			deadline = later(deadline, w.session.LastContact().Add(l.cfg.LivenessTimeout))
		}
		switch {
		case b.now.Before(deadline):
			l.checkBy(deadline)
		case w.session != nil:
			silent = append(silent, w)
		case b.now.Before(l.reconnectDeadline(w)):
			l.nextCheck = time.Time{}
		default:
			gone = append(gone, w)
		}
	}
	if len(silent)+len(gone) > 0 {
		l.nextCheck = time.Time{} // the batch may not have capacity for all of them
	}
	var losses workerLosses
	defer losses.log(l.cfg.Logger)
	l.markDown(b, gone, &losses)
	if !l.massFailureGuard(b.now, silent) {
		l.markDown(b, silent, &losses)
	}
}

// markDown marks workers down as far as the batch has capacity.
func (l *liveness) markDown(b *batch, list []*worker, losses *workerLosses) {
	slices.SortFunc(list, func(a, b *worker) int { return cmp.Compare(a.id, b.id) })
	for _, w := range list {
		if b.full() {
			return
		}
		if l.isHeard(b, w) {
			continue
		}
		reason := "liveness timeout"
		if w.leaving && w.held.len() == 0 {
			reason = "left"
			losses.left.add(w)
		} else {
			losses.timedOut.add(w)
			l.cfg.Totals.WorkersDown.Add(1)
		}
		l.workers.remove(b, w)
		b.entry.Do(&fsm.MarkWorkerDown{ID: w.id, Reason: reason})
	}
}

// isHeard closes the session of a worker that is about to be marked down, and
// reports whether the worker was heard from before that. Its heartbeat may have
// been answered, which lets it start attempts. So it keeps them, and the liveness
// timeout to reconnect.
func (l *liveness) isHeard(b *batch, w *worker) bool {
	if w.session == nil {
		return false
	}
	w.session.Close(errLiveness)
	deadline := w.session.LastContact().Add(l.cfg.LivenessTimeout)
	if !b.now.Before(deadline) {
		return false
	}
	w.session, w.deadline = nil, deadline
	l.checkBy(deadline)
	l.workers.updateAccepting(b.view, w)
	return true
}

// AllowReconnectsUntil reports that a worker was deferred: it will reconnect at
// the given time, because the leader admits workers at a bounded rate. Until
// then workers without a session are not marked down.
func (s *Sequencer) AllowReconnectsUntil(until time.Time) {
	l := &s.liveness
	to := int64(until.Sub(l.start))
	for {
		known := l.reconnectsBy.Load()
		if to <= known || l.reconnectsBy.CompareAndSwap(known, to) {
			return
		}
	}
}

// reconnectDeadline returns the time until which a worker without a session may
// reconnect because it may have been deferred.
func (l *liveness) reconnectDeadline(w *worker) time.Time {
	known := l.reconnectsBy.Load()
	if known == 0 {
		return time.Time{}
	}
	until := l.start.Add(time.Duration(known)).Add(l.cfg.LivenessTimeout)
	limit := w.deadline.Add(l.cfg.TimeScale.Scale(maxReconnectDelay))
	if until.After(limit) {
		return limit
	}
	return until
}

// massFailureGuard extends the deadlines of timed-out workers once if they are
// more than half of all, and at least three: the cause is then more likely this
// replica than the workers. It reports whether it did.
func (l *liveness) massFailureGuard(now time.Time, silent []*worker) bool {
	if len(silent) < 3 || 2*len(silent) <= len(l.workers.byID) ||
		now.Sub(l.guardedAt) < 2*l.cfg.LivenessTimeout {
		return false
	}
	l.cfg.Logger.Warn("mass worker timeout; extending liveness deadlines",
		"timed_out", len(silent), "workers", len(l.workers.byID))
	l.guardedAt = now
	for _, w := range silent {
		w.deadline = now.Add(l.cfg.LivenessTimeout)
	}
	return true
}

// extendDeadlines resets liveness timeouts and extends the deadlines of
// attempts by gap. This process was paused, or waited for its log: it has not
// yet read what the workers sent meanwhile.
func (l *liveness) extendDeadlines(now time.Time, gap time.Duration) {
	l.cfg.Logger.Warn("process pause detected; liveness timeouts reset", "gap", gap)
	for _, w := range l.workers.byID {
		w.deadline = later(w.deadline, now.Add(l.cfg.LivenessTimeout))
		w.held.extend(monoTime(gap))
	}
}

// extend moves the timestamps of all attempts later.
func (h *holdings) extend(gap monoTime) {
	for i := range h.list {
		x := &h.list[i]
		x.assigned += gap
		if x.started != 0 {
			x.started += gap
			x.progressed += gap
		}
	}
	for a, e := range h.endings { // unordered: each is independent of the others
		e.since += gap
		h.endings[a] = e
	}
}
