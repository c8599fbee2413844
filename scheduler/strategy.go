package scheduler

// A Strategy is how one of the workers that fit a task is chosen.
type Strategy uint8

// The strategies. All of them choose a worker with a free slot before one where the task would
// wait. Among those it is always the least loaded.
const (
	// Spread: the least loaded.
	Spread Strategy = iota
	// Pack: the fullest. See worker.share.
	Pack
	// Random: the less loaded of two random ones.
	Random
)

// A choice is which workers findWorker may return.
type choice struct {
	shape *shape
	avoid WorkerID
	// waits: those where the task would wait for a slot, instead of those with a free one.
	waits bool
	// preferred: only those that fulfill what the class prefers.
	preferred bool
}

// takes reports whether a worker may be returned.
func (x *choice) takes(w *worker) bool {
	return w.ranked() && w.id != x.avoid && (w.used >= w.slots) == x.waits && w.fits(x.shape) &&
		(!x.preferred || w.meetsAll(x.shape.prefer))
}

// choose is findWorker for a shape that prefers workers, or has another strategy than Spread.
// It returns one with a free slot if there is any, and among these a preferred one.
func (s *Scheduler) choose(c *shape, avoid WorkerID) *worker {
	x := choice{shape: c, avoid: avoid}
	for {
		if x.preferred = len(c.prefer) > 0; x.preferred {
			if w := s.pick(&x); w != nil {
				return w
			}
		}
		x.preferred = false
		if w := s.pick(&x); w != nil {
			return w
		}
		if x.waits || !c.prefetchable {
			break
		}
		x.waits = true
	}
	if w := s.workers[avoid]; w != nil && w.ranked() && w.fits(c) {
		return w
	}
	return nil
}

// pick returns the worker that the strategy chooses among those of a choice, or nil.
func (s *Scheduler) pick(x *choice) *worker {
	strategy := x.shape.place
	if x.waits {
		strategy = Spread
	}
	few := x.shape.version == s.version && len(x.list()) <= maxProbes
	switch strategy {
	case Pack:
		return s.pickFullest(x, few)
	case Random:
		return s.pickRandom(x, few)
	case Spread:
	}
	if !few {
		if w, decided := s.walkChoice(x); decided {
			return w
		}
	}
	return s.best(x, (*worker).before)
}

// walkChoice visits the workers from the least loaded on, and stops undecided after maxProbes.
func (s *Scheduler) walkChoice(x *choice) (w *worker, decided bool) {
	v, some := s.leastLoaded()
	for range maxProbes {
		switch w := v.worker; {
		case !some || w.full() || w.used >= w.slots && !x.waits:
			return nil, true // and so is every worker after it
		case x.takes(w):
			return w, true
		}
		v, some = s.nextLoaded(v)
	}
	return nil, false
}

// list returns the workers that the class fits when they are idle. It may be outdated.
func (x *choice) list() []*worker {
	if x.preferred {
		return x.shape.preferred
	}
	return x.shape.eligible
}

// best scans all workers that the class fits when they are idle for the first one in an
// order.
func (s *Scheduler) best(x *choice, before func(w, o *worker) bool) (best *worker) {
	s.updateLists(x.shape)
	for _, w := range x.list() {
		if x.takes(w) && (best == nil || before(w, best)) {
			best = w
		}
	}
	return best
}

// updateLists finds the workers that a class fits when they are idle, after a change of what
// workers offer.
func (s *Scheduler) updateLists(c *shape) {
	if c.version == s.version {
		return
	}
	c.version = s.version
	clear(c.eligible)
	clear(c.preferred)
	c.eligible, c.preferred = c.eligible[:0], c.preferred[:0]
	for _, w := range s.sorted {
		if !w.eligible(c) {
			continue
		}
		c.eligible = append(c.eligible, w)
		if len(c.prefer) > 0 && w.meetsAll(c.prefer) {
			c.preferred = append(c.preferred, w)
		}
	}
}

// pickRandom draws two workers, and returns the less loaded one.
func (s *Scheduler) pickRandom(x *choice, few bool) *worker {
	var first *worker
	items := s.byLoad.items
	for range maxProbes {
		if few || len(items) == 0 {
			break
		}
		switch w := items[s.random.Below(uint64(len(items)))].worker; {
		case !x.takes(w):
		case first == nil:
			first = w
		default:
			return lessLoaded(first, w)
		}
	}
	return s.drawTwo(x)
}

// drawTwo draws among all workers of a choice: each has the same chance, although their
// number is not known before.
func (s *Scheduler) drawTwo(x *choice) *worker {
	s.updateLists(x.shape)
	var drawn [2]*worker
	n := uint64(0)
	for _, w := range x.list() {
		if !x.takes(w) {
			continue
		}
		if n++; n <= 2 {
			drawn[n-1] = w
		} else if at := s.random.Below(n); at < 2 {
			drawn[at] = w
		}
	}
	if n < 2 {
		return drawn[0]
	}
	return lessLoaded(drawn[0], drawn[1])
}

func lessLoaded(a, b *worker) *worker {
	if b.before(a) {
		return b
	}
	return a
}
