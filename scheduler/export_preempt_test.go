package scheduler

import (
	"fmt"
	"slices"
)

// PreemptOne is Preempt for the oldest task for which it finds anything.
func (s *Scheduler) PreemptOne(valid func(TaskRef) bool, ending func(WorkerID) bool) (p Preemption, ok bool) {
	s.untried = 0
	for _, p := range s.preempt(valid, ending, 1) {
		return p, true
	}
	return p, false
}

// UnkeepPreempted is what Preempt does first.
func (s *Scheduler) UnkeepPreempted(ending func(WorkerID) bool) {
	if s.MayPreempt() {
		s.unkeepPreempted(ending)
	}
}

// checkYields checks the counts of attempts that give their places to urgent tasks.
func (s *Scheduler) checkYields() error {
	total, byQueue := 0, make(map[*queue]int)
	for _, w := range s.sorted {
		byClass := make(map[ClassID]int)
		for _, y := range w.yields {
			q := s.classes[y.Class].flow.queue
			total, byQueue[q], byClass[y.Class] = total+y.N, byQueue[q]+y.N, byClass[y.Class]+y.N
			i := slices.IndexFunc(w.held, func(h holding) bool { return h.class == y.Class })
			if y.N <= 0 || i < 0 || byClass[y.Class] > int(w.held[i].n) {
				return fmt.Errorf("%d attempts of class %d on worker %d would end, of which it does not hold as many", y.N, y.Class, w.id)
			}
		}
	}
	if total != s.yields {
		return fmt.Errorf("%d attempts would end for others, counted %d", total, s.yields)
	}
	for name, q := range s.queues {
		if q.yields != byQueue[q] {
			return fmt.Errorf("%d attempts of queue %q would end for others, counted %d", byQueue[q], name, q.yields)
		}
	}
	return nil
}
