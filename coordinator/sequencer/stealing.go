package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

const (
	// stealMinIdle is the time since its last assignment after which a worker
	// may be asked: attempts of shorter tasks start before the request arrives.
	stealMinIdle = 10 * time.Millisecond
	// minStealInterval is the time between two checks for attempts to steal. It
	// doubles while none is found, up to sweepInterval.
	minStealInterval = 5 * time.Millisecond
	// stealRetryDelay is when a worker is asked again that released nothing: it
	// had started all that it was asked for.
	stealRetryDelay = time.Second
)

// stealing rebalances prefetched attempts. A prefetched attempt may wait behind
// a long task. If another worker has a free slot, and no ready task for it, the
// first worker is asked to release what it has not started. A released attempt
// is requeued without counting as a retry. Its next attempt has a higher
// number, so the two workers can't be confused. The worker keeps attempts that
// it has started meanwhile.
type stealing struct {
	sched    *scheduler.Scheduler
	workers  *workerTable
	nextAt   time.Time
	interval time.Duration
}

// next returns when the load should be checked again; ok is false if it is
// balanced.
func (x *stealing) next() (at time.Time, ok bool) {
	return x.nextAt, x.sched.Imbalanced() || len(x.workers.revocable) > 0
}

// revoke asks the workers whose slots are taken by long attempts to release
// what waits there.
func (x *stealing) revoke(b *batch) {
	if len(x.workers.revocable) == 0 || b.now.Before(x.nextAt) || b.full() {
		return
	}
	x.workers.revocable = slices.DeleteFunc(x.workers.revocable, func(id fsm.WorkerID) bool {
		w := x.workers.byID[id]
		if w == nil || !w.revoke || w.session == nil || w.leaving {
			return true
		}
		if b.now.Sub(w.assignedAt) < stealMinIdle {
			return false // what was just assigned may not have arrived
		}
		w.revoke = false
		b.cfg.Totals.StealRequests.Add(uint64(askAll(b, w))) //nolint:gosec // a count
		return true
	})
	x.nextAt = b.now.Add(minStealInterval)
}

// askAll asks a worker for all attempts that it has not reported as started,
// and returns their number.
func askAll(b *batch, w *worker) (n int) {
	for i := range w.held.list {
		if x := &w.held.list[i]; x.started == 0 && !x.stopped && !x.ends {
			x.stealAsked = true
			m := b.to(w)
			m.StealRequests = append(m.StealRequests, x.AttemptRef)
			n++
		}
	}
	return n
}

// run asks loaded workers to release what idle workers could start now.
func (x *stealing) run(b *batch) {
	x.revoke(b)
	if !x.sched.Imbalanced() || b.now.Before(x.nextAt) || b.full() {
		return // a full batch is followed by another immediately
	}
	n := 0
	mayAsk := func(id scheduler.WorkerID) bool { return mayAsk(b.now, x.workers.byID[fsm.WorkerID(id)]) }
	for _, r := range x.sched.Rebalance(mayAsk) {
		n += ask(b, x.workers.byID[fsm.WorkerID(r.From)], r)
	}
	x.interval = min(max(2*x.interval, minStealInterval), sweepInterval)
	if n > 0 {
		x.interval = minStealInterval
		b.cfg.Totals.StealRequests.Add(uint64(n)) //nolint:gosec // not negative
	}
	x.nextAt = b.now.Add(x.interval)
}

// mayAsk reports whether a worker may be asked to release attempts.
func mayAsk(now time.Time, w *worker) bool {
	return w != nil && w.session != nil && !w.leaving &&
		now.Sub(w.assignedAt) >= stealMinIdle && now.Sub(w.stealAsked) >= stealRetryDelay
}

// ask asks a worker for attempts that wait there, and returns their number: the
// most urgent ones, which must not wait while others begin elsewhere, and of
// those the ones that it got last, which it starts last. It skips those that may
// have started.
func ask(b *batch, w *worker, r scheduler.StealRequest) int {
	var list []*held
	for i := range w.held.list {
		x := &w.held.list[i]
		if x.class == r.Class && !x.stopped && !x.ends && b.at.since(x.assigned) >= time.Duration(r.Waited)*time.Millisecond {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return 0
	}
	mayRun := w.held.oldest(w.prefetch.slots)
	list = slices.DeleteFunc(list, func(x *held) bool { return mayRun[x.AttemptRef] })
	slices.SortFunc(list, func(x, y *held) int {
		return cmp.Or(cmp.Compare(y.priority, x.priority), cmp.Compare(y.number, x.number))
	})
	list = list[:min(len(list), r.N)]
	if len(list) > 0 {
		w.stealAsked = b.now
		m := b.to(w)
		for _, x := range list {
			x.stealAsked = true
			m.StealRequests = append(m.StealRequests, x.AttemptRef)
		}
	}
	return len(list)
}
