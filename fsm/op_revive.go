package fsm

import (
	"slices"
	"strings"
)

// Revive reruns tasks that ended without completing, so that their job
// continues.
type Revive struct {
	Job JobID
	// Tasks are the indexes of the requested tasks, ascending; empty: all. Tasks
	// that were cancelled because of them are revived, too.
	Tasks []uint32
	Precondition
}

func (*Revive) kind() opKind { return 28 }

func (o *Revive) fields(c *coder) {
	number(c, &o.Job)
	c.indexes(&o.Tasks)
	o.Precondition.fields(c)
}

// apply revives tasks that ended without completing. Their failures and
// losses are reset, and their attempt numbers kept. Tasks that were cancelled
// because of others are revived if all their dependencies may still complete.
// If an ordinary task is revived, all cleanup tasks are, even completed ones:
// they run again after it.
// Rejects: JobNotFound, TaskNotFound, KeyConflict if the key is known: a second
// copy changes nothing; VersionMismatch, Malformed; WrongState if a task has not
// ended, has completed, or depends on one that is not revived, if there is nothing to
// revive, or if cleanup tasks run.
func (o *Revive) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	if j == nil {
		return JobNotFound
	}
	if r := o.check(s, j); r != Accepted {
		return r
	}
	if j.outcome != 0 && !j.state.Terminal() {
		return WrongState
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
		j.state, j.stateChanged = JobPending, s.own.at
		if j.started != 0 {
			j.state = JobRunning
		}
	}
	j.stopping, j.ended, j.revived = false, 0, s.now
	if chosen[0] < j.ordinary { // cleanup tasks are last
		j.outcome = 0
		chosen = s.rerunCleanup(j, chosen)
	}
	for _, i := range chosen {
		past := j.lastAttemptNote(i) // drop the reason for its end
		var r *record
		if j.records.at(i).pending > 0 || j.outcome == 0 && j.isCleanup(i) {
			r = s.move(j, i, Blocked)
			r.ended = 0
		} else {
			r = s.makeReady(j, i, fx)
		}
		r.note = past
		r.failures, r.losses, r.startLogged, r.cancelledByUser = 0, 0, false, false
		s.mixRecord(r)
	}
	behind := make(map[uint32]uint32)
	for i := range j.total {
		if r := j.records.at(i); r.state == Cancelled && !r.cancelledByUser {
			s.renewCancelReason(j, i, behind)
		}
	}
	if j.outcome == 0 || j.outcome == JobCompleted {
		j.err = j.firstFailure()
	}
	o.changed(s, j, 0)
	s.mixJob(j)
	fx.revived(j.id)
	return Accepted
}

// renewCancelReason corrects why a task stays cancelled because of another
// one. The task that its reason named may have been revived; then it names
// another failed dependency.
func (s *State) renewCancelReason(j *job, i uint32, behind map[uint32]uint32) {
	why, now := "", j.endReason(i)
	j.task(i).eachDep(func(dep uint32) {
		at := j.failedTask(dep, behind)
		if at == j.total {
			return
		}
		text := dependencyFailed(j.name(at))
		if why == "" || text == now || j.span(dep) > 1 && j.names(now, dep) {
			why = text
			if j.span(dep) > 1 && j.names(now, dep) {
				why = now
			}
		}
	})
	if why == "" || why == now {
		return
	}
	note := s.endNote(j, i, why)
	r := j.records.write(s.own, i)
	r.note = note
	s.mixRecord(r)
}

// failedTask returns the first task of a head that ended without completing;
// the job's total if all completed. Each array is scanned once.
func (j *job) failedTask(head uint32, known map[uint32]uint32) uint32 {
	n := j.span(head)
	if at, ok := known[head]; ok {
		return at
	}
	for i := head; i < head+n; i++ {
		if st := j.records.at(i).state; st.Terminal() && st != Completed {
			if n > 1 {
				known[head] = i
			}
			return i
		}
	}
	if n > 1 {
		known[head] = j.total
	}
	return j.total
}

// names reports whether a reason names a task of an array that ended without
// completing.
func (j *job) names(text string, head uint32) bool {
	name, ok := strings.CutPrefix(text, "dependency ")
	name, ended := strings.CutSuffix(name, " failed")
	a, _, _ := j.arrayOf(head)
	k, found := a.findName(name)
	if !ok || !ended || !found {
		return false
	}
	st := j.records.at(head + k).state
	return st.Terminal() && st != Completed
}

// rerunCleanup replaces the chosen cleanup tasks by all that have ended, and
// lets each wait for all its dependencies again.
func (s *State) rerunCleanup(j *job, chosen []uint32) []uint32 {
	first, _ := slices.BinarySearch(chosen, j.ordinary)
	chosen = chosen[:first]
	for at, a := range j.arrays {
		if j.isCleanup(a.first) {
			j.writeLeft(s.own)[at] = a.count
		}
	}
	for i := j.ordinary; i < j.total; i++ {
		r := j.records.write(s.own, i)
		r.pending = uint32(j.task(i).ndeps) //nolint:gosec // bounded by the chunk
		s.mixRecord(r)
		if r.state.Terminal() {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// firstFailure returns the error of the first failed task that is not
// revived; empty without one, or if the job tolerates the failures.
func (j *job) firstFailure() string {
	first := uint32(0)
	if j.toleratesFailures() {
		first = j.ordinary
	}
	if failedOf(&j.counts) == 0 {
		return ""
	}
	for i := first; i < j.total; i++ {
		if st := j.records.at(i).state; st == Failed || st == Dead || st == Lost {
			return j.failure(i, st, j.endReason(i))
		}
	}
	return ""
}

// selectable checks that indexes ascend, are in the job, and are of tasks in
// a suitable state.
func (j *job) selectable(tasks []uint32, ok func(TaskState) bool) Reason {
	for k, i := range tasks {
		switch {
		case i >= j.total:
			return TaskNotFound
		case k > 0 && tasks[k-1] >= i:
			return Malformed
		case !ok(j.records.at(i).state):
			return WrongState
		}
	}
	return Accepted
}

// chooseRevived returns the tasks to revive, ascending: the requested ones,
// and those that were cancelled because of others and can run again. It
// visits a task after all its dependencies. ok is false if a requested task
// could never become ready.
func (j *job) chooseRevived(asked []uint32) (list []uint32, ok bool) {
	back := make([]bool, j.total)
	whole := make(map[uint32]bool) // by the heads of arrays: all tasks may complete
	for i := range j.total {
		r := j.records.at(i)
		if !r.state.Terminal() || r.state == Completed {
			continue
		}
		_, named := slices.BinarySearch(asked, i)
		if !named && len(asked) > 0 && (r.state != Cancelled || r.cancelledByUser) {
			continue
		}
		free := true
		j.task(i).eachDep(func(dep uint32) {
			if n := j.span(dep); n > 1 { // all its tasks were visited before
				fine, known := whole[dep]
				if !known {
					fine = true
					for k := dep; k < dep+n; k++ {
						fine = fine && j.mayComplete(k, back)
					}
					whole[dep] = fine
				}
				free = free && fine
				return
			}
			free = free && j.mayComplete(dep, back)
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

// mayComplete reports whether a task has completed or still can.
func (j *job) mayComplete(i uint32, back []bool) bool {
	st := j.records.at(i).state
	return !st.Terminal() || st == Completed || back[i]
}
