package fsm

import (
	"fmt"
	"slices"
)

// How many live attempts each worker has is kept beside the list of workers, so
// that one that went can be forgotten without a look at all that is live: thousands
// go at once, with a rack or a network. It follows from the records, so it is
// neither in snapshots nor in the digest.

// writeHeld gives the counts for changing.
func (s *State) writeHeld() []int32 {
	if s.heldOwn != s.own {
		s.heldBy = slices.Clone(s.heldBy)
		s.heldOwn = s.own
	}
	return s.heldBy
}

// letGo notes that a worker has a live attempt less. Only a damaged record names a
// worker that is not there.
func (s *State) letGo(id WorkerID) {
	if at, found := s.workerAt(id); found {
		s.writeHeld()[at]--
	}
}

// insertWorker puts a worker that holds nothing into the list.
func (s *State) insertWorker(at int, w *Worker) {
	s.workers = slices.Insert(s.writeWorkers(), at, w)
	s.heldBy = slices.Insert(s.writeHeld(), at, 0)
}

// removeWorkers removes workers that exist. Their numbers ascend.
func (s *State) removeWorkers(ids []WorkerID) {
	list, held, kept := s.writeWorkers(), s.writeHeld(), 0
	for at, w := range list {
		if len(ids) > 0 && w.ID == ids[0] {
			ids = ids[1:]
			continue
		}
		list[kept], held[kept] = w, held[at]
		kept++
	}
	clear(list[kept:])
	s.workers, s.heldBy = list[:kept], held[:kept]
}

// recountHeld counts the slow way.
func (s *State) recountHeld() []int32 {
	held := make([]int32, len(s.workers))
	for _, p := range s.jobs.pages {
		for _, j := range &p.jobs {
			if j == nil {
				continue
			}
			left := j.counts[Assigned]
			for i := uint32(0); left > 0 && i < j.records.n; i++ {
				r := j.records.at(i)
				if r.state != Assigned {
					continue
				}
				left--
				if at, found := s.workerAt(r.worker); found {
					held[at]++
				}
			}
		}
	}
	return held
}

// checkHeld compares the counts with the records.
func (s *State) checkHeld() error {
	want := s.recountHeld()
	if len(want) != len(s.heldBy) {
		return fmt.Errorf("has %d workers, counts what %d hold", len(want), len(s.heldBy))
	}
	for at, w := range s.workers {
		if s.heldBy[at] != want[at] {
			return fmt.Errorf("worker %d holds %d attempts, counts %d", w.ID, want[at], s.heldBy[at])
		}
	}
	return nil
}
