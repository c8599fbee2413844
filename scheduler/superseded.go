package scheduler

// superseded are the entries that are dropped when they are reached, because the position of
// their tasks in the order has changed. Mostly it is empty.
type superseded struct {
	tasks map[TaskRef]uint64       // entries of a task up to this seq
	jobs  map[uint64]supersededJob // entries of the tasks of a job
}

// A supersededJob tells which entries of a job are dropped.
type supersededJob struct {
	seq    uint64            // those of all tasks up to this one,
	except map[uint32]uint64 // but of these tasks, by index, only up to an earlier one
}

// of returns up to which seq the entries of a task are dropped.
func (j *supersededJob) of(index uint32) uint64 {
	if seq, ok := j.except[index]; ok {
		return seq
	}
	return j.seq
}

// lead returns how many of the first tasks of a run are all superseded with the job, or all not.
func (j *supersededJob) lead(e *entry) (n uint32, dropped bool) {
	dropped = e.seq <= j.of(e.index)
	switch {
	case e.seq > j.seq: // the whole run was pushed later
		return e.n, false
	case len(j.except) == 0:
		return uint32(min(uint64(e.n), j.seq-e.seq+1)), true //nolint:gosec // G115: at most e.n
	}
	n = 1
	for n < e.n && (e.seq+uint64(n) <= j.of(e.index+n)) == dropped {
		n++
	}
	return n, dropped
}

// Supersede drops all entries of a task that were pushed until now, because its
// position in the order changes. They are dropped when Next, Sweep, or a Push to
// the same ready queue reaches them, and count until then.
func (s *Scheduler) Supersede(t TaskRef) {
	if s.Len() == 0 {
		return
	}
	if s.superseded.tasks == nil {
		s.superseded.tasks = make(map[TaskRef]uint64)
	}
	s.superseded.tasks[t] = s.pushes
}

// SupersedeJob is Supersede for all tasks of a job but those with some indexes. It takes the
// time of as many as those, and a run of entries is dropped at once.
func (s *Scheduler) SupersedeJob(job uint64, except []uint32) {
	if s.Len() == 0 {
		return
	}
	if s.superseded.jobs == nil {
		s.superseded.jobs = make(map[uint64]supersededJob)
	}
	before, now := s.superseded.jobs[job], supersededJob{seq: s.pushes}
	if len(except) > 0 {
		now.except = make(map[uint32]uint64, len(except))
	}
	for _, index := range except {
		now.except[index] = before.of(index)
	}
	s.superseded.jobs[job] = now
}

// isSuperseded reports whether the entry of a task with this seq is to be dropped.
func (x *superseded) isSuperseded(t TaskRef, seq uint64) bool {
	if len(x.jobs) > 0 {
		if j := x.jobs[t.Job]; seq <= j.of(t.Index) {
			return true
		}
	}
	return len(x.tasks) > 0 && seq <= x.tasks[t]
}

// withJob returns how many of the first tasks of a run were superseded with their job.
func (x *superseded) withJob(e *entry) uint32 {
	if len(x.jobs) == 0 {
		return 0
	}
	j := x.jobs[e.job]
	if e.seq > j.of(e.index) {
		return 0 // without reading how many of its tasks stay
	}
	n, _ := j.lead(e)
	return n
}

// isSuperseded reports whether the first task of a run was superseded.
func (s *Scheduler) isSuperseded(e *entry) bool { return s.superseded.isSuperseded(e.task(), e.seq) }

// isStale reports whether the first task of a run must be dropped.
func (s *Scheduler) isStale(e *entry, valid func(TaskRef) bool) bool {
	return s.isSuperseded(e) || valid != nil && !valid(e.task())
}

// drop removes the first task of a queue, which is stale, and those after it in its run that
// were superseded with their job. The runs of alternatives are equal: none of them continues
// another one, whose tasks were pushed to the other alternatives between.
func (s *Scheduler) drop(q *readyQueue) {
	if n := s.superseded.withJob(q.front()); n > 1 {
		s.depth[q.priority] -= int(n - 1)
		q.skip(n - 1)
		for _, a := range q.class.alternatives {
			if other := &a.queues[q.priority]; other != q {
				other.skip(n - 1)
			}
		}
	}
	s.pop(q)
}

// SweepSuperseded drops the entries of superseded jobs, and returns their number. It reads all
// runs, but asks for no task whether it is valid.
func (s *Scheduler) SweepSuperseded() int {
	before := s.Len()
	if len(s.superseded.jobs) == 0 {
		return 0
	}
	s.filter(func(e *entry, keep func(entry)) {
		j := s.superseded.jobs[e.job]
		for rest := *e; rest.n > 0; {
			n, dropped := j.lead(&rest)
			if !dropped {
				part := rest
				part.n = n
				keep(part)
			}
			rest.skip(n)
		}
	})
	s.superseded.jobs = nil // none of these entries is left
	return before - s.Len()
}

// Sweep drops every entry for which valid is false and returns their number. It
// reads all entries. Call it after many waiting tasks were cancelled, so that
// they don't take memory, and don't count in Depth, until Next reaches them.
func (s *Scheduler) Sweep(valid func(TaskRef) bool) int {
	before := s.Len()
	s.filter(func(e *entry, keep func(entry)) {
		x := *e
		x.skip(s.superseded.withJob(e))
		for left := x.n; left > 0; left-- {
			if x.n = 1; !s.isSuperseded(&x) && valid(x.task()) {
				keep(x)
			}
			x.index, x.seq = x.index+1, x.seq+1
		}
	})
	s.superseded = superseded{} // none of these entries is left
	return before - s.Len()
}

// filter replaces each run of all ready queues by those that f keeps of it.
func (s *Scheduler) filter(f func(e *entry, keep func(entry))) {
	for _, c := range s.classes {
		for p := Low; p <= Urgent; p++ {
			q := &c.queues[p]
			if q.n == 0 {
				continue
			}
			before := q.n
			var kept fifo
			keep := func(e entry) { kept.push(&s.pages, e) }
			for q.n > 0 {
				f(q.front(), keep)
				q.popRun(&s.pages)
			}
			q.fifo = kept
			if c.number == 0 {
				s.depth[p] -= before - q.n
			}
			s.relist(q)
		}
	}
}
