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
		if r.marks.startLogged() {
			j.running--
		}
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
	if r.state.Terminal() != to.Terminal() {
		if to.Terminal() {
			s.countTask(to)
		}
		if at, within := j.arrayAt(i); within {
			ends := &j.writeEnds(s.own)[at]
			ends.move(ends.of(r.state, r.cause), ends.of(to, r.cause), 1)
		}
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

// cancelTask ends a task as cancelled. The digest covers the cause only after
// the end, as in earlier builds, so that entries of theirs have the same digest.
func (s *State) cancelTask(j *job, i uint32, why string, cause cancelCause) {
	s.endTask(j, i, Cancelled, s.endNote(j, i, why))
	if cause != causeOther { // it already is
		s.setCause(j, i, cause)
	}
}

// setCause sets why a cancelled task is cancelled.
func (s *State) setCause(j *job, i uint32, cause cancelCause) {
	r := j.records.write(s.own, i)
	if at, within := j.arrayAt(i); within {
		ends := &j.writeEnds(s.own)[at]
		ends.move(ends.of(Cancelled, r.cause), ends.of(Cancelled, cause), 1)
	}
	r.cause = cause
	s.mixRecord(r)
}

// textNote stores a text and returns its note; 0 for an empty text.
func (s *State) textNote(j *job, why string) uint32 {
	if why == "" {
		return 0
	}
	s.mixString(why)
	return j.notes.addText(s.own, why)
}

// taskCompleted does what follows the end of a task as completed.
func (s *State) taskCompleted(j *job, i uint32, fx *Effects) {
	if at, within := j.arrayAt(i); within {
		left := j.ends[at].uncompleted()
		s.mix(uint64(at)<<32 | uint64(left)) //nolint:gosec // an index
	}
	if len(j.dependents(i).heads) > 0 { // most tasks have none
		s.follow(j, []endedRun{{i, 1}}, fx)
	}
}

// failTask ends a task as failed, dead or lost. It cancels the tasks that can
// no longer run and, if the job stops on failure, all ordinary tasks that have
// not started.
func (s *State) failTask(j *job, i uint32, to TaskState, why string, note uint32, fx *Effects) {
	s.endTask(j, i, to, note)
	s.taskFailed(j, i, to, why, fx)
}

// taskFailed does what follows the end of a task as failed, dead or lost.
func (s *State) taskFailed(j *job, i uint32, to TaskState, why string, fx *Effects) {
	if to == Dead {
		fx.dead(TaskRef{j.id, i})
	}
	s.taskEvent(TaskFailedEvent, j, i)
	if j.err == "" && (j.isCleanup(i) || !j.toleratesFailures()) {
		j.err = j.failure(i, to, why)
	}
	s.follow(j, []endedRun{{i, 1}}, fx)
	if j.stopsOnFailure() && !j.stopping && !j.isCleanup(i) && !j.toleratesFailures() {
		s.stop(j, i, fx)
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

// dependencyFailed is the reason for cancelling the dependents of a task.
func dependencyFailed(name string) string { return "dependency " + name + " failed" }

// stop cancels all ordinary tasks of a job that have not started because a
// task failed, except those that depend on how a task ends.
func (s *State) stop(j *job, i uint32, fx *Effects) {
	s.mixJob(j)
	j.stopping = true
	why := "job stopped: task " + j.name(i) + " failed"
	s.cancelAll(j, j.ordinary, func(k uint32, r *record) {
		if r.state != Assigned && !j.outlivesStop(k) {
			s.cancelTask(j, k, why, causeOther)
		}
	}, fx)
}

// cancelAll cancels with a function the tasks below an index that have not
// ended. Nothing but their own state changes before all of them were visited.
func (s *State) cancelAll(j *job, end uint32, cancel func(i uint32, r *record), fx *Effects) {
	var runs []endedRun
	for i := range end {
		r := j.records.at(i)
		if r.state.Terminal() {
			continue
		}
		cancel(i, r)
		if !j.hasConditions() || !j.records.at(i).state.Terminal() {
			continue // without conditions, all dependents are cancelled as well
		}
		if last := len(runs) - 1; last >= 0 && j.unit(runs[last].task) == j.unit(i) {
			runs[last].n++
		} else {
			runs = append(runs, endedRun{i, 1})
		}
	}
	s.follow(j, runs, fx)
}
