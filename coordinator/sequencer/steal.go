package sequencer

import (
	"cmp"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// Work that was given ahead of a free slot may turn out to wait behind a long
// task. When another worker has a free slot and no ready task for it, the first
// one is asked to give back what it has not begun. What it gives back is put
// back like anything else that is handed back, without burning a retry, and is
// assigned anew: the next attempt has a higher number, so that the two workers
// cannot be taken for each other. What it has begun meanwhile it keeps.
const (
	// stealAfter is how long a worker was not given anything before it is asked:
	// tasks that are shorter are begun before they could come back.
	stealAfter = 10 * time.Millisecond
	// stealGap is the time between two looks for what could be given back; it
	// doubles while nothing is found, up to sweepEvery.
	stealGap = 5 * time.Millisecond
	// stealPatience is how long a worker is not asked again that has given
	// nothing back: it had begun all that it was asked for.
	stealPatience = time.Second
)

// steal asks loaded workers to give back what idle ones could begin now.
func (s *Sequencer) steal(b *batch) {
	if !s.sched.Imbalanced() || b.now.Before(s.stealAt) || !b.room() {
		return // without room there is a next batch at once
	}
	n := 0
	for _, r := range s.sched.Rebalance(func(id scheduler.WorkerID) bool { return s.mayAsk(b.now, s.workers[fsm.WorkerID(id)]) }) {
		n += s.askBack(b, s.workers[fsm.WorkerID(r.From)], r)
	}
	s.stealGap = min(max(2*s.stealGap, stealGap), sweepEvery)
	if n > 0 {
		s.stealGap = stealGap
		s.cfg.Totals.StealRequests.Add(uint64(n)) //nolint:gosec // not negative
	}
	s.stealAt = b.now.Add(s.stealGap)
}

// mayAsk reports whether a worker may be asked to give something back.
func (s *Sequencer) mayAsk(now time.Time, w *worker) bool {
	return w != nil && w.session != nil && !s.assignOff.Load() && !w.draining && now.Sub(w.fed) >= stealAfter && now.Sub(w.asked) >= stealPatience
}

// askBack asks a worker for what it was given last, which it begins last. One
// that has begun as far as is known is not asked for.
func (s *Sequencer) askBack(b *batch, w *worker, r scheduler.StealRequest) int {
	var list []*held
	for i := range w.held.list {
		if x := &w.held.list[i]; x.class == r.Class && x.began == 0 && !x.stopped && x.drained == 0 {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(x, y *held) int { return cmp.Compare(y.number, x.number) })
	list = list[:min(len(list), r.N)]
	if len(list) > 0 {
		w.asked = b.now
		m := b.to(w.session)
		for _, x := range list {
			x.asked = true
			m.StealRequests = append(m.StealRequests, x.AttemptRef)
		}
	}
	return len(list)
}

// gaveBack notes that a worker did as it was asked: it may be asked again.
func (s *Sequencer) gaveBack(w *worker) {
	w.asked = time.Time{}
	s.cfg.Totals.Steals.Add(1)
}
