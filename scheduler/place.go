package scheduler

// patience is how many workers walk looks at in the order of the heap before
// the list of eligible ones is scanned instead. Both find the same worker; the
// walk is cheaper when most workers fit, the scan when few do.
const patience = 32

// place returns the worker that comes first in the order of worker.before among
// those with room for the class, taking the one to avoid only if there is no
// other; nil if there is none at all.
func (s *Scheduler) place(c *class, avoid WorkerID) *worker {
	if c.fleet == s.fleets && len(c.eligible) <= patience {
		return s.scan(c, avoid) // known to be few
	}
	w, decided := s.walk(c, avoid)
	if !decided {
		w = s.scan(c, avoid)
	}
	return w
}

// walk visits the heap of workers from the least loaded on, and gives up
// undecided when its patience ends. For class 0 it decides at the first worker,
// or the second if the first is to be avoided.
func (s *Scheduler) walk(c *class, avoid WorkerID) (found *worker, decided bool) {
	s.search.items = s.search.items[:0]
	s.visit(0)
	for range patience {
		if len(s.search.items) == 0 {
			return found, true
		}
		v := s.search.remove(0)
		if v.worker.full() || v.worker.used >= v.worker.slots && !c.ahead {
			return found, true // and so is every one after it
		}
		if v.worker.fits(c) {
			if v.worker.id != avoid {
				return v.worker, true
			}
			found = v.worker
		}
		s.visit(2*v.at + 1)
		s.visit(2*v.at + 2)
	}
	return nil, false
}

// A visit is a worker whose parents in the heap were all looked at: those that
// come next in order are among them.
type visit struct {
	worker *worker
	at     int
}

func (v visit) before(o visit) bool { return v.worker.before(o.worker) }
func (visit) moved(int)             {}

func (s *Scheduler) visit(at int) {
	if at < len(s.idlest.items) {
		s.search.push(visit{s.idlest.items[at], at})
	}
}

// scan looks at each worker that could run the class when idle.
func (s *Scheduler) scan(c *class, avoid WorkerID) *worker {
	if c.fleet != s.fleets {
		c.fleet = s.fleets
		clear(c.eligible)
		c.eligible = c.eligible[:0]
		for _, w := range s.fleet {
			if w.eligible(c) {
				c.eligible = append(c.eligible, w)
			}
		}
	}
	var best, avoided *worker
	for _, w := range c.eligible {
		switch {
		case !w.listed() || !w.fits(c):
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

// hasRoom reports whether any worker takes new tasks of any class.
func (s *Scheduler) hasRoom() bool {
	return len(s.idlest.items) > 0 && !s.idlest.items[0].full()
}

// choose takes what the class needs from a worker that fits.
func (s *Scheduler) choose(w *worker, c *class) {
	w.hold(c)
	c.held++
	s.choices++
	w.turn = s.draw()
	s.list(w)
}

// draw returns a turn, the order among equal loads: a random moment within the
// next round, where a round is as many choices as there are workers, in steps
// of 2^-16 of a choice. The package documentation says why not any number.
func (s *Scheduler) draw() uint64 {
	round := uint64(len(s.fleet)) + 1
	return s.choices<<16 + s.random.Below(round<<16)
}
