package scheduler

// maxProbes is the number of workers that walk visits in the order of the heap
// before the list of eligible workers is scanned instead. Both find the same
// worker; the walk is cheaper if most workers fit, the scan if few do.
const maxProbes = 32

// findWorker returns the first worker in the order of worker.before that has
// capacity for the shape, or nil. It returns the worker to avoid only if no
// other has capacity.
func (s *Scheduler) findWorker(c *shape, avoid WorkerID) *worker {
	if c.place != Spread || len(c.prefer) > 0 {
		return s.choose(c, avoid)
	}
	if c.version == s.version && len(c.eligible) <= maxProbes {
		return s.scan(c, avoid) // known to be few
	}
	w, decided := s.walk(c, avoid)
	if !decided {
		w = s.scan(c, avoid)
	}
	return w
}

// walk visits the heap of workers from the least loaded on, and stops undecided
// after maxProbes. For class 0 it decides at the first worker, or at the second
// if the first is to be avoided.
func (s *Scheduler) walk(c *shape, avoid WorkerID) (found *worker, decided bool) {
	v, some := s.leastLoaded()
	for range maxProbes {
		if !some || v.worker.full() || v.worker.used >= v.worker.slots && !c.prefetchable {
			return found, true // and so is every worker after it
		}
		if v.worker.fits(c) {
			if v.worker.id != avoid {
				return v.worker, true
			}
			found = v.worker
		}
		v, some = s.nextLoaded(v)
	}
	return nil, false
}

// A visit is a worker in byLoad at a position.
type visit struct {
	worker *worker
	pos    int
}

func (v visit) before(o visit) bool { return v.worker.before(o.worker) }
func (visit) setPos(int)            {}

// leastLoaded returns the first worker in the order of load. Most searches end there, and
// don't use the heap of nextLoaded.
func (s *Scheduler) leastLoaded() (v visit, ok bool) {
	s.search.items = s.search.items[:0]
	if len(s.byLoad.items) == 0 {
		return visit{}, false
	}
	return visit{s.byLoad.items[0].worker, 0}, true
}

// nextLoaded returns the worker that follows the last one that leastLoaded or nextLoaded returned:
// it is among those all of whose parents in byLoad were returned.
func (s *Scheduler) nextLoaded(last visit) (v visit, ok bool) {
	items := s.byLoad.items
	for child := heapWidth*last.pos + 1; child < min(heapWidth*(last.pos+1)+1, len(items)); child++ {
		s.search.push(visit{items[child].worker, child})
	}
	if len(s.search.items) == 0 {
		return visit{}, false
	}
	return s.search.remove(0), true
}

// scan checks every worker that could run the shape when idle.
func (s *Scheduler) scan(c *shape, avoid WorkerID) *worker {
	var best, avoided *worker
	for _, w := range s.eligible(c) {
		switch {
		case !w.ranked() || !w.fits(c):
		case w.id == avoid:
			avoided = w
		case best == nil || w.before(best):
			best = w
		}
	}
	if best == nil {
		return avoided
	}
	return best
}

// eligible returns the workers that could run the shape when idle.
func (s *Scheduler) eligible(c *shape) []*worker {
	s.updateLists(c)
	return c.eligible
}

// hasCapacity reports whether any worker takes new tasks of any class.
func (s *Scheduler) hasCapacity() bool {
	return len(s.byLoad.items) > 0 && !s.byLoad.items[0].key.full()
}

// occupy takes what the class needs from a worker.
func (s *Scheduler) occupy(w *worker, c *class, p Priority) {
	s.hold(w, c, p)
	s.choices++
	w.turn = s.draw()
	s.rank(w)
}

// draw returns a turn, which orders workers of equal load: a random time within
// the next round, in units of 2^-16 of a choice. A round is as many choices as
// there are workers. The package documentation explains the growth of turns.
func (s *Scheduler) draw() uint64 {
	round := uint64(len(s.sorted)) + 1
	return s.choices<<16 + s.random.Below(round<<16)
}
