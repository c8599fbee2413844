package fsm

import "slices"

// apply brings back tasks that ended without completing, with their failures
// and losses forgotten and their attempt numbers kept, and lets the job go on.
// Tasks that were cancelled because of others come back if everything that they
// depend on may still complete.
// Rejects: NoSuchJob, NoSuchTask; WrongState if one of the tasks has not ended,
// has completed, or depends on one that stays behind, or if there is none to
// bring back.
func (o *Revive) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	if j == nil {
		return NoSuchJob
	}
	if r := j.selectable(o.Tasks, func(st TaskState) bool { return st.Terminal() && st != Completed }); r != Accepted {
		return r
	}
	chosen, ok := j.chooseRevived(o.Tasks)
	if !ok || len(chosen) == 0 {
		return WrongState
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	if j.state.Terminal() {
		j.state = JobPending
		if j.started != 0 {
			j.state = JobRunning
		}
	}
	j.stopping, j.ended, j.revived = false, 0, s.now
	for _, i := range chosen {
		to := Pending
		if j.records.at(i).pending > 0 {
			to = Blocked
		}
		r := s.move(j, i, to)
		r.note = j.past(i) // why it was cancelled is no longer so
		r.failures, r.losses, r.ended, r.begun, r.byHand = 0, 0, 0, false, false
		s.mixRecord(r)
		if to == Pending {
			fx.ready(TaskRef{j.id, i})
		}
	}
	j.err = j.firstFailure()
	s.mixJob(j)
	fx.revived(j.id)
	return Accepted
}

// firstFailure says what the first of the failed tasks that stay behind failed
// of; empty if there is none.
func (j *job) firstFailure() string {
	if j.counts[Failed]+j.counts[Dead]+j.counts[Lost] == 0 {
		return ""
	}
	for i := range j.total {
		if st := j.records.at(i).state; st == Failed || st == Dead || st == Lost {
			return failure(j.name(i), st, j.why(i))
		}
	}
	return ""
}

// selectable checks indexes: ascending, in the job, and in a state that allows
// what is asked.
func (j *job) selectable(tasks []uint32, ok func(TaskState) bool) Reason {
	for k, i := range tasks {
		switch {
		case i >= j.total:
			return NoSuchTask
		case k > 0 && tasks[k-1] >= i:
			return Malformed
		case !ok(j.records.at(i).state):
			return WrongState
		}
	}
	return Accepted
}

// chooseRevived gives the tasks that come back, ascending: those asked for, and
// those that were cancelled because of other tasks and may run again. A task is
// looked at after all that it depends on. ok is false if one that was asked for
// could never become ready.
func (j *job) chooseRevived(asked []uint32) (list []uint32, ok bool) {
	back := make([]bool, j.total)
	for i := range j.total {
		r := j.records.at(i)
		if !r.state.Terminal() || r.state == Completed {
			continue
		}
		_, named := slices.BinarySearch(asked, i)
		if !named && len(asked) > 0 && (r.state != Cancelled || r.byHand) {
			continue
		}
		free := true
		j.task(i).eachDep(i, func(dep uint32) {
			st := j.records.at(dep).state
			free = free && (!st.Terminal() || st == Completed || back[dep])
		})
		if free {
			back[i] = true
			list = append(list, i)
		} else if named {
			return nil, false
		}
	}
	return list, true
}

// apply takes dead letters out of the queue.
// Rejects: NoSuchJob, NoSuchTask; WrongState if one of the tasks is not dead,
// or if there is none.
func (o *Purge) apply(s *State, _ *Effects) Reason {
	j := s.sealedJob(o.Job)
	if j == nil {
		return NoSuchJob
	}
	if r := j.selectable(o.Tasks, func(st TaskState) bool { return st == Dead }); r != Accepted {
		return r
	}
	if j.counts[Dead] == 0 {
		return WrongState
	}
	j = s.jobs.write(s.own, o.Job)
	for i := range j.total {
		_, named := slices.BinarySearch(o.Tasks, i)
		if j.records.at(i).state == Dead && (named || len(o.Tasks) == 0) {
			s.mixRecord(s.move(j, i, Failed))
		}
	}
	return Accepted
}

func (o *Revive) encode(e *encoder) { e.u64(uint64(o.Job)); encodeIndexes(e, o.Tasks) }
func (o *Revive) decode(d *decoder) { o.Job, o.Tasks = JobID(d.u64()), decodeIndexes(d) }
func (o *Purge) encode(e *encoder)  { e.u64(uint64(o.Job)); encodeIndexes(e, o.Tasks) }
func (o *Purge) decode(d *decoder)  { o.Job, o.Tasks = JobID(d.u64()), decodeIndexes(d) }

// encodeIndexes writes ascending indexes as differences.
func encodeIndexes(e *encoder, list []uint32) {
	e.u64(uint64(len(list)))
	last := uint32(0)
	for _, i := range list {
		e.u64(uint64(i - last))
		last = i
	}
}

func decodeIndexes(d *decoder) []uint32 {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]uint32, n)
	last := uint32(0)
	for i := range list {
		last += d.u32()
		list[i] = last
	}
	return list
}
