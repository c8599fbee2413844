package fsm

import "fmt"

// legal is the transition table of tasks: legal[from] has a bit for each
// state that may follow. docs/states.md draws it.
var legal = [numStates]uint16{
	Blocked:   1<<Pending | 1<<Scheduled | 1<<Cancelled | 1<<Failed,
	Scheduled: 1<<Pending | 1<<Cancelled | 1<<Failed,
	Pending:   1<<Assigned | 1<<Completed | 1<<Scheduled | 1<<Cancelled | 1<<Failed,
	Assigned:  1<<Completed | 1<<Pending | 1<<Scheduled | 1<<Failed | 1<<Dead | 1<<Lost | 1<<Cancelled,
	// A cleanup task runs again after revived tasks.
	Completed: 1 << Blocked,
	// Users revive them, or purge a dead letter.
	Failed:    1<<Pending | 1<<Scheduled | 1<<Blocked,
	Cancelled: 1<<Pending | 1<<Scheduled | 1<<Blocked,
	Dead:      1<<Pending | 1<<Blocked | 1<<Failed,
	Lost:      1<<Pending | 1<<Blocked,
}

// move changes the state of a task. Callers have checked that the transition
// is legal. An illegal one is a bug in this package, which panics before the
// damage spreads.
func (s *State) move(j *job, i uint32, to TaskState) *record {
	r := j.records.write(s.own, i)
	if legal[r.state]&(1<<to) == 0 {
		panic(fmt.Sprintf("fsm: task %d/%d: illegal transition %v → %v at entry %d", j.id, i, r.state, to, s.entries))
	}
	return s.setState(j, i, to)
}

// setState is move for any transition.
func (s *State) setState(j *job, i uint32, to TaskState) *record {
	r := j.records.write(s.own, i)
	s.mix(uint64(j.id)<<32 | uint64(i))
	s.mixRecord(r)
	s.mix(uint64(j.counts[r.state])<<32 | uint64(j.counts[to]))
	j.counts[r.state]--
	if r.state == Assigned {
		s.workers.release(s.own, r.worker)
	}
	if to == Dead {
		s.deadLetters.add(s.own, j.kind(i), 1)
	} else if r.state == Dead {
		s.deadLetters.add(s.own, j.kind(i), -1)
	}
	j.counts[to]++
	if j.isCleanup(i) {
		j.cleanupCounts[r.state]--
		j.cleanupCounts[to]++
	}
	r.state = to
	if j.checkpoints > 0 && to.Terminal() {
		s.dropCheckpoint(j, i)
	}
	return r
}

// endTask ends a task in a state other than completed.
func (s *State) endTask(j *job, i uint32, to TaskState, note uint32) {
	r := s.move(j, i, to)
	r.ended, r.note = s.now, note
	s.mixRecord(r)
}

// cancelTask ends a task as cancelled.
func (s *State) cancelTask(j *job, i uint32, why string) {
	s.endTask(j, i, Cancelled, s.endNote(j, i, why))
}

// textNote stores a text and returns its note; 0 for an empty text.
func (s *State) textNote(j *job, why string) uint32 {
	if why == "" {
		return 0
	}
	s.mixString(why)
	return j.notes.addText(s.own, why)
}

// failTask ends a task as failed, dead or lost. It cancels the dependents
// and, if the job stops on failure, all ordinary tasks that have not started.
func (s *State) failTask(j *job, i uint32, to TaskState, why string, note uint32, fx *Effects) {
	s.endTask(j, i, to, note)
	s.taskFailed(j, i, to, why, fx)
}

// taskFailed does what follows the end of a task as failed, dead or lost.
func (s *State) taskFailed(j *job, i uint32, to TaskState, why string, fx *Effects) {
	if to == Dead {
		fx.dead(TaskRef{j.id, i})
	}
	if j.err == "" && (j.isCleanup(i) || !j.toleratesFailures()) {
		j.err = j.failure(i, to, why)
	}
	s.cancelDependents(j, i)
	if j.stopsOnFailure() && !j.stopping && !j.isCleanup(i) && !j.toleratesFailures() {
		s.stop(j, i)
	}
	s.settle(j, fx)
}

// failure is the error of a job that a task failed.
func (j *job) failure(i uint32, state TaskState, why string) string {
	text := fmt.Sprintf("task %s %s: %s", j.name(i), state, why)
	switch {
	case j.isCleanup(i):
		return "cleanup " + text
	case j.toleratedFailures() > 0:
		return fmt.Sprintf("%d tasks failed, more than %d: %s", j.failedOrdinary(), j.toleratedFailures(), text)
	}
	return text
}

// cancelDependents cancels the dependents of a task at any distance, depth
// first. They are blocked, since the task has not completed. For an array
// that is cancelled as a whole, one task stands for all of them.
func (s *State) cancelDependents(j *job, i uint32) {
	stack := []uint32{i}
	for len(stack) > 0 {
		x := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		why := ""
		for _, head := range j.dependents(x) {
			first := true
			for k := head; k < head+j.span(head); k++ {
				if j.records.at(k).state != Blocked {
					continue
				}
				if why == "" {
					why = dependencyFailed(j.name(x))
				}
				s.cancelTask(j, k, why)
				if first {
					first, stack = false, append(stack, k)
				}
			}
		}
	}
}

// dependencyFailed is the reason for cancelling the dependents of a task.
func dependencyFailed(name string) string { return "dependency " + name + " failed" }

// stop cancels all ordinary tasks of a job that have not started because a
// task failed.
func (s *State) stop(j *job, i uint32) {
	s.mixJob(j)
	j.stopping = true
	why := "job stopped: task " + j.name(i) + " failed"
	for k := range j.ordinary {
		if r := j.records.at(k); !r.state.Terminal() && r.state != Assigned {
			s.cancelTask(j, k, why)
		}
	}
}

// release readies the dependents of a completed task, or of the array that it
// completes.
func (s *State) release(j *job, i uint32, fx *Effects) {
	if at, within := j.arrayAt(i); within {
		left := j.writeLeft(s.own)
		left[at]--
		s.mix(uint64(at)<<32 | uint64(left[at])) //nolint:gosec // an index
		if left[at] > 0 {
			return
		}
	}
	for _, k := range j.dependents(i) {
		if n := j.span(k); n > 1 && j.updates == nil {
			s.releaseRun(j, k, n, fx)
			continue
		}
		for end := k + j.span(k); k < end; k++ {
			r := j.records.writeUnseen(s.own, k)
			r.pending--
			if r.pending > 0 || r.state != Blocked {
				s.mix(uint64(k))
				s.mixRecord(r)
				continue
			}
			s.mixRecord(s.makeReady(j, k, fx))
		}
	}
}

// releaseRun is release for a dependent array of a job without updates.
func (s *State) releaseRun(j *job, first, n uint32, fx *Effects) {
	s.mix(uint64(first)<<32 | uint64(n))
	j.records.writeRun(s.own, first, n, func(r *record) bool {
		r.pending-- // the same for all of them
		if r.pending > 0 || r.state != Blocked {
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

// settle readies the cleanup tasks of a job if all ordinary tasks have ended,
// and ends the job if all tasks have.
func (s *State) settle(j *job, fx *Effects) {
	if j.state.Terminal() || j.openOrdinary() > 0 {
		return
	}
	if j.outcome == 0 {
		as := JobCompleted
		switch {
		case !j.toleratesFailures():
			as = JobFailed
		case j.counts[Cancelled] > j.cleanupCounts[Cancelled] && (j.failedOrdinary() == 0 || j.wasCancelledByUser()):
			as = JobCancelled
		}
		s.decideOutcome(j, as, fx)
	}
	if j.open() > 0 {
		return
	}
	as := j.outcome
	switch {
	case as != JobCompleted: // cleanup tasks do not change it
	case failedOf(&j.cleanupCounts) > 0:
		as = JobFailed
	case j.cleanupCounts[Cancelled] > 0:
		as = JobCancelled
	}
	s.closeJob(j, as, fx)
}

// wasCancelledByUser reports whether a user cancelled an ordinary task. Other
// tasks may be cancelled because they depend on a tolerated failure.
func (j *job) wasCancelledByUser() bool {
	for i := range j.ordinary {
		if r := j.records.at(i); r.state == Cancelled && r.cancelledByUser {
			return true
		}
	}
	return false
}

// decideOutcome sets the outcome of the ordinary tasks, which have all ended,
// and readies the cleanup tasks without open dependencies.
func (s *State) decideOutcome(j *job, as JobState, fx *Effects) {
	j.outcome = as
	s.mixJob(j)
	for i := j.ordinary; i < j.total; i++ {
		if r := j.records.at(i); r.state == Blocked && r.pending == 0 {
			s.mixRecord(s.makeReady(j, i, fx))
		}
	}
}

func (s *State) closeJob(j *job, as JobState, fx *Effects) {
	j.state, j.ended, j.stateChanged = as, s.now, s.own.at
	s.mixJob(j)
	fx.endedJob(j.id)
	s.notifyEnd(j, fx)
}
