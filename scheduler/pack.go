package scheduler

import mathbits "math/bits"

// A packOrder has the workers that may get tasks in the order of Pack. It exists only while
// classes use it: keeping it costs each assignment and each end as much as Scheduler.byLoad.
type packOrder struct {
	workers heap[packed]
	search  heap[packVisit] // scratch space of pickFullest
	unused  int             // changes of workers since it was used
}

// minPackUse is how many changes of workers may pass, beyond 4 for each worker, until an order
// that nothing uses is dropped. To build it again costs less.
const minPackUse = 1024

// packed is a worker in the order of Pack.
type packed struct{ *worker }

func (p packed) before(o packed) bool { return p.fullerThan(o.worker) }
func (p packed) setPos(pos int)       { p.packPos = pos }

// fullerThan orders workers for Pack: those with a free slot first, then by what is taken of
// them, most first, then by turn.
func (w *worker) fullerThan(o *worker) bool {
	if free := w.used < w.slots; free != (o.used < o.slots) {
		return free
	}
	if w.share != o.share {
		return w.share > o.share
	}
	if w.turn != o.turn {
		return w.turn < o.turn
	}
	return w.id < o.id
}

// updateShare computes how full the worker is: the largest share of its slots, or of one of its
// resources, that is taken, in units of 2^-32.
func (w *worker) updateShare() {
	const unit = 1 << 32
	w.share = uint64(w.used) * unit / uint64(max(w.slots, 1))
	for r, taken := range w.taken {
		total := amount(w.total, resourceID(r)) //nolint:gosec // G115: resources are few
		switch {
		case taken <= 0:
		case taken >= total:
			w.share = max(w.share, unit)
		default:
			hi, lo := mathbits.Mul64(uint64(taken), unit)
			share, _ := mathbits.Div64(hi, lo, uint64(total)) //nolint:gosec // G115: above taken
			w.share = max(w.share, share)
		}
	}
}

// packOrder returns the order of Pack, and builds it if it does not exist.
func (s *Scheduler) packOrder() *packOrder {
	if s.pack == nil {
		s.pack = &packOrder{}
		for _, w := range s.sorted {
			w.packPos = -1
			s.rankPacked(w)
		}
	}
	s.pack.unused = 0
	return s.pack
}

// rankPacked moves a worker to its position in the order of Pack after a change, or in or out of
// it.
func (s *Scheduler) rankPacked(w *worker) {
	o := s.pack
	if o.unused++; o.unused > minPackUse+4*len(s.sorted) {
		s.pack = nil
		return
	}
	w.updateShare()
	switch in := w.packPos >= 0; {
	case w.ranked() && in:
		o.workers.fix(w.packPos)
	case w.ranked():
		o.workers.push(packed{w})
	case in:
		o.workers.remove(w.packPos)
	}
}

// A packVisit is what visit is for walk.
type packVisit struct {
	worker *worker
	pos    int
}

func (v packVisit) before(o packVisit) bool { return v.worker.fullerThan(o.worker) }
func (packVisit) setPos(int)                {}

// pickFullest returns the fullest worker of a choice. It visits them in order, and scans all
// that could fit after maxProbes.
func (s *Scheduler) pickFullest(x *choice, few bool) *worker {
	o := s.packOrder()
	if few {
		return s.best(x, (*worker).fullerThan)
	}
	o.search.items = o.search.items[:0]
	o.visit(0)
	for range maxProbes {
		if len(o.search.items) == 0 {
			return nil
		}
		v := o.search.remove(0)
		switch {
		case v.worker.used >= v.worker.slots:
			return nil // and so is every worker after it
		case x.takes(v.worker):
			return v.worker
		}
		o.visit(2*v.pos + 1)
		o.visit(2*v.pos + 2)
	}
	return s.best(x, (*worker).fullerThan)
}

func (o *packOrder) visit(pos int) {
	if pos < len(o.workers.items) {
		o.search.push(packVisit{o.workers.items[pos].worker, pos})
	}
}
