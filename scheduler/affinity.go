package scheduler

// An affinity is the key of a class, with the worker that it chooses: that of all usable
// workers that could run the class which has the highest score for the key (rendezvous
// hashing). If a worker leaves, only its keys get another one; if one joins, it gets its
// part of the keys from all others.
type affinity struct {
	hash   uint64
	worker *worker // nil: no worker that accepts tasks could run the class
	epoch  uint64  // worker is valid while it is that of affinityWaits
}

// newAffinity returns the affinity of a demand; nil if it has no key. Keys of different
// namespaces are different.
func newAffinity(d *Demand) *affinity {
	if d.Affinity == "" {
		return nil
	}
	h := hashText(hashText(fnvOffset, d.Namespace)*fnvPrime, d.Affinity)
	return &affinity{hash: mix(h)}
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hashText continues an FNV-1a hash.
func hashText(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64: each bit of x decides about all bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// score orders the workers of a key. It depends on nothing but these two, of which both are
// mixed: one multiplication makes the high bits depend on all others.
func score(key uint64, seed uint64) uint64 { return (key ^ seed) * 0x9e3779b97f4a7c15 }

// seedOf returns the part of a worker in score.
func seedOf(w WorkerID) uint64 { return mix((uint64(w) + 1) * 0x9e3779b97f4a7c15) }

// A seedBlock has the seeds of workers that follow one another. A choice compares eight scores with
// the highest one at a time, without a bounds check: among 1,000 workers it takes 0.54 µs instead of
// 0.65 with one comparison at a time (go test ./scheduler -run - -bench AffinityMiss).
type seedBlock [8]uint64

// A homeList has the workers that could be that of a key: those that are usable and eligible
// for a shape. It is valid while epoch is that of affinityWaits. The seeds are beside it, so
// that a choice reads nothing else; the last one is repeated to the end of its block.
type homeList struct {
	workers []*worker
	seeds   []seedBlock
	epoch   uint64
}

// homes returns the workers that could be that of a key of a class.
func (s *Scheduler) homes(sh *shape) *homeList {
	l := &sh.homes
	if l.epoch == s.affinity.epoch {
		return l
	}
	l.epoch, l.workers, l.seeds = s.affinity.epoch, l.workers[:0], l.seeds[:0]
	for _, w := range s.eligible(sh) {
		if w.usable() {
			l.add(w)
		}
	}
	return l
}

func (l *homeList) add(w *worker) {
	seed, at := seedOf(w.id), len(l.workers)%len(seedBlock{})
	l.workers = append(l.workers, w)
	if at == 0 {
		l.seeds = append(l.seeds, seedBlock{})
	}
	last := l.seeds[len(l.seeds)-1][at:]
	for i := range last {
		last[i] = seed
	}
}

// keyWorker returns the worker of the key of a class, or nil: without a key, or if no usable
// worker could run the class. The choice is kept until the fleet changes.
func (s *Scheduler) keyWorker(c *class) *worker {
	a := c.affinity
	if a == nil {
		return nil
	}
	if a.epoch == s.affinity.epoch {
		return a.worker
	}
	a.epoch, a.worker = s.affinity.epoch, nil
	if list := s.homes(c.shape); len(list.workers) > 0 {
		a.worker = list.workers[highest(a.hash, list.seeds)]
	}
	return a.worker
}

// highest returns the position of the seed with the highest score for a key. Scores of different
// seeds are different.
func highest(key uint64, blocks []seedBlock) int {
	best, at := uint64(0), 0
	for i := range blocks {
		b := &blocks[i]
		if score(key, b[0]) > best || score(key, b[1]) > best || score(key, b[2]) > best || score(key, b[3]) > best ||
			score(key, b[4]) > best || score(key, b[5]) > best || score(key, b[6]) > best || score(key, b[7]) > best {
			best, at = b.highest(key), i
		}
	}
	for i, seed := range blocks[at] {
		if score(key, seed) == best {
			return at*len(seedBlock{}) + i
		}
	}
	return at * len(seedBlock{}) // all scores are 0
}

func (b *seedBlock) highest(key uint64) (best uint64) {
	for _, seed := range b {
		best = max(best, score(key, seed))
	}
	return best
}

// startsNow reports whether the worker has a free slot for a task of a shape, and what else it
// needs.
func (w *worker) startsNow(c *shape) bool {
	return w.ranked() && w.used < w.slots && w.fitsWithSlot(c)
}

// prefetchesKeyed reports whether the worker of keys that has no free slot may prefetch more of
// their tasks: not more than it has slots while another worker is idle, where they could spill.
func (w *worker) prefetchesKeyed(idle bool) bool { return !idle || w.waiting < w.slots }

// takes reports whether the worker of a key takes a task of a shape now. If it doesn't because
// another worker is idle, wakeBound asks again when none is.
func (s *Scheduler) takes(w *worker, c *shape) bool {
	switch {
	case !w.ranked() || !w.fits(c):
		return false
	case w.used < w.slots || w.prefetchesKeyed(s.someIdle()):
		return true
	}
	if !w.bound {
		w.bound = true
		s.affinity.bound = append(s.affinity.bound, w)
	}
	return false
}

// someIdle reports whether a worker has a free slot.
func (s *Scheduler) someIdle() bool {
	return len(s.byLoad.items) > 0 && s.byLoad.items[0].used < s.byLoad.items[0].slots
}

// findFor is findWorker with the key of the class: its worker is first.
func (s *Scheduler) findFor(c *class, avoid WorkerID) *worker {
	if c.affinity != nil {
		if w := s.keyWorker(c); w != nil && w.id != avoid && s.takes(w, c.shape) {
			return w
		}
	}
	return s.findWorker(c.shape, avoid)
}

// awaits reports whether the first task of a ready queue waits for the worker of its key. A
// task that avoids this worker does not, nor does one that may spill.
func (s *Scheduler) awaits(r *readyQueue, e *entry) bool {
	w := s.keyWorker(r.class)
	return w != nil && w.id != e.avoid && !s.takes(w, r.class.shape) && !r.wait.mayStart(s.affinity.round, e.seq)
}

// overtakableFor is overtakable for a class: a task with a key overtakes only at its worker.
func (s *Scheduler) overtakableFor(c *class, p Priority) *worker {
	if w := s.keyWorker(c); w != nil {
		if w.mayBeOvertaken(c.shape, p) {
			return w
		}
		return nil
	}
	return s.overtakable(c.shape, p)
}

// A KeyWorker is the worker of the affinity of a class.
type KeyWorker struct {
	Worker WorkerID // 0: the class has no affinity, or no usable worker could run it
	// Load is what runs on the worker and waits for it, in thousandths of its slots.
	Load uint64
	// Busy: it can't start a task of the class now, only prefetch one at most.
	Busy bool
}

// KeyWorker returns the worker of the affinity of a class.
func (s *Scheduler) KeyWorker(id ClassID) KeyWorker {
	c := s.classes[id]
	w := s.keyWorker(c)
	if w == nil {
		return KeyWorker{}
	}
	load := (uint64(w.used) + uint64(w.awaited)) * 1000 / uint64(max(w.slots, 1)) //nolint:gosec // not negative
	return KeyWorker{Worker: w.id, Load: load, Busy: !w.startsNow(c.shape)}
}

// KeyWorker returns the worker of the task's affinity. Its Busy is false for a task that does
// not wait for this worker, because its last attempt failed there.
func (v *TaskView) KeyWorker() KeyWorker {
	k := v.key
	k.Busy = k.Busy && k.Worker != v.avoid
	return k
}
