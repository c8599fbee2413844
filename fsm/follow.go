package fsm

// endedRun is n tasks of one unit, one of them named, that ended in the same way.
type endedRun struct{ task, n uint32 }

// follow does what follows the ends of tasks: their dependents become ready or
// are cancelled, those of the cancelled ones as well, and so on at any
// distance, depth first. ended has at most one run of each unit.
func (s *State) follow(j *job, ended []endedRun, fx *Effects) {
	var room [16]endedRun // enough for most jobs, and on the stack
	stack := append(room[:0], ended...)
	for len(stack) > 0 {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		next := j.dependents(e.task)
		if len(next.heads) == 0 {
			continue
		}
		r, is, most := j.records.at(e.task), j.unitCount(e.task), j.tolerance(e.task)
		was := is
		was.move(was.of(r.state, r.cause), &was.open, e.n)
		if !decides(was, is, most) {
			continue // an array has as many ends as tasks, and few of them matter
		}
		for k, head := range next.heads {
			when := next.condition(k)
			f := when.fate(is, most)
			switch {
			case f == waits || when.fate(was, most) != waits:
			case f == holds:
				s.release(j, head, fx)
			default:
				if first, n := s.cancelUnit(j, head, j.endedWhy(e.task, when, f), f); n > 0 {
					stack = append(stack, endedRun{first, n})
				}
			}
		}
	}
}

// decides reports whether the ends of tasks of a unit change what it means for
// a dependent, whatever the condition.
func decides(was, is unitCount, most uint32) bool {
	for c := range numConditions {
		if c.fate(is, most) != waits && c.fate(was, most) == waits {
			return true
		}
	}
	return false
}

// cancelUnit cancels the blocked tasks of a unit. It returns the first and
// their number.
func (s *State) cancelUnit(j *job, head uint32, why string, f fate) (first, n uint32) {
	cause := causeOther
	if f == needless {
		cause = causeSkipped
	}
	for k := head; k < head+j.span(head); k++ {
		if j.records.at(k).state != Blocked {
			continue
		}
		if n == 0 {
			first = k
		}
		s.cancelTask(j, k, why, cause)
		n++
	}
	return first, n
}

// release counts that the condition of one more dependency of a unit holds.
// Tasks become ready with their last one, unless they are closed.
func (s *State) release(j *job, head uint32, fx *Effects) {
	n, closed := j.span(head), j.closed(head)
	if n > 1 && j.updates == nil {
		s.releaseRun(j, head, n, closed, fx)
		return
	}
	for k := head; k < head+n; k++ {
		r := j.records.writeUnseen(s.own, k)
		r.pending--
		if r.pending > 0 || r.state != Blocked || closed {
			s.mix(uint64(k))
			s.mixRecord(r)
			continue
		}
		s.mixRecord(s.makeReady(j, k, fx))
	}
}

// releaseRun is release for an array of a job without updates.
func (s *State) releaseRun(j *job, first, n uint32, closed bool, fx *Effects) {
	s.mix(uint64(first)<<32 | uint64(n))
	j.records.writeRun(s.own, first, n, func(r *record) bool {
		r.pending-- // the same for all of them
		if r.pending > 0 || r.state != Blocked || closed {
			return false
		}
		r.state, r.ended = Pending, 0
		return true
	}, func(at, n uint32) {
		s.mix(uint64(at)<<32 | uint64(n))
		j.counts[Blocked] -= n
		j.counts[Pending] += n
		if j.isCleanup(at) {
			j.cleanupCounts[Blocked] -= n
			j.cleanupCounts[Pending] += n
		}
		fx.readyRun(TaskRef{j.id, at}, n)
	})
}
