package fsm

import (
	"math"
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
// because of others are revived if the conditions of all their dependencies may
// still hold. If an ordinary task is revived, all cleanup tasks are, even
// completed ones: they run again after it. Tasks that run or have completed keep
// doing so, even if their dependencies run again.
// Rejects: JobNotFound, TaskNotFound, KeyConflict if the key is known: a second
// copy changes nothing; VersionMismatch, Malformed; WrongState if a task has not
// ended, has completed, or depends on one that is not revived, if there is nothing to
// revive, or if cleanup tasks run; NeedUnmet if no ordinary task was ever ready,
// because a job that it needs has ended otherwise than required; RunOpen if too many jobs wait
// for its concurrency key. The job waits for the key again.
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
	plan, ok := j.planRevival(o.Tasks)
	if !ok || len(plan.chosen)+len(plan.causes) == 0 {
		return WrongState
	}
	needEnds, unmet := s.renewNeeds(j)
	if unmet >= 0 {
		return NeedUnmet
	}
	again := j.state.Terminal() && j.hasKey()
	if again && s.isFull(j.header) {
		return RunOpen
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	if needEnds != nil {
		j.needEnds = needEnds
		s.mixNeeds(j)
	}
	if j.state.Terminal() {
		j.state, j.stateChanged = JobPending, s.own.at
		if j.started != 0 {
			j.state = JobRunning
		}
	}
	j.stopping, j.ended, j.revived = false, 0, s.now
	if plan.first() < j.ordinary { // cleanup tasks are last
		j.outcome = 0
		if again {
			j.gate = gateClosed
		}
		plan.chosen = s.rerunCleanup(j, plan.chosen)
	}
	if again {
		s.joinKey(j)
	}
	free := s.recountPending(j, &plan)
	for _, i := range plan.chosen {
		s.reviveTask(j, i, fx)
	}
	for _, c := range plan.causes {
		s.changeCause(j, c.task, c.cause)
	}
	for _, i := range free {
		s.mixRecord(s.makeReady(j, i, fx))
	}
	s.renewCancelReasons(j)
	if j.outcome == 0 || j.outcome == JobCompleted {
		j.err = j.firstFailure()
	}
	o.changed(s, j, 0)
	s.mixJob(j)
	fx.revived(j.id)
	s.jobEvent(JobRevivedEvent, j)
	if j.gated() && !j.waiting() {
		fx.gated(j.id)
	}
	s.settle(j, fx) // if nothing runs again: the tasks turned out not to be needed
	return Accepted
}

// reviveTask makes a task that ended wait for its dependencies, or ready.
func (s *State) reviveTask(j *job, i uint32, fx *Effects) {
	past := j.lastAttemptNote(i) // drop the reason for its end
	if past == 0 || past != j.records.at(i).note {
		fx.revivedTask(TaskRef{j.id, i})
	}
	var r *record
	if j.records.at(i).pending > 0 || j.closed(i) {
		r = s.move(j, i, Blocked)
		r.ended = 0
	} else {
		r = s.makeReady(j, i, fx)
	}
	r.note = past
	r.failures, r.losses, r.cause = 0, 0, causeOther
	r.marks &^= markStartLogged // a worker may still stop the last attempt, which takes its alternative
	s.mixRecord(r)
}

// renewCancelReasons corrects why tasks stay cancelled because of others. The
// task that a reason names may have been revived; then it names another
// dependency.
func (s *State) renewCancelReasons(j *job) {
	behind := make(map[uint32]uint32)
	// of is what the last reason follows from: tasks of an array mostly have the same.
	type origin struct {
		head  uint32
		now   string
		cause cancelCause
	}
	of, why := origin{head: math.MaxUint32}, ""
	for i := range j.total {
		r := j.records.at(i)
		if r.state != Cancelled || r.cause == causeUser {
			continue
		}
		now := j.endReason(i)
		if from := (origin{j.head(i), now, r.cause}); from != of {
			of, why = from, j.cancelReason(i, now, r.cause, behind)
		}
		if why == "" || why == now {
			continue
		}
		note := s.endNote(j, i, why)
		r = j.records.write(s.own, i)
		r.note = note
		s.mixRecord(r)
	}
}

// cancelReason returns why a task stays cancelled: now, if that is still true.
// It returns an empty text if no dependency is the cause.
func (j *job) cancelReason(i uint32, now string, cause cancelCause, behind map[uint32]uint32) (why string) {
	j.task(i).eachDep(func(dep uint32, when Condition) {
		f := j.fateOf(dep, when)
		if f != impossible && f != needless || (f == needless) != (cause == causeSkipped) {
			return
		}
		at := dep
		if f == impossible {
			at = j.failedTask(dep, behind)
		}
		text := j.endedWhy(at, when, f)
		if f == impossible && j.span(dep) > 1 && j.names(now, dep) {
			text = now
		}
		if why == "" || text == now {
			why = text
		}
	})
	return why
}

// failedTask returns the first task of a head that failed or was cancelled;
// the job's total if all completed. Each array is scanned once.
func (j *job) failedTask(head uint32, known map[uint32]uint32) uint32 {
	n := j.span(head)
	if at, ok := known[head]; ok {
		return at
	}
	for i := head; i < head+n; i++ {
		if j.records.at(i).failed() {
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

// names reports whether a reason names a task of an array that failed or was
// cancelled.
func (j *job) names(text string, head uint32) bool {
	name, ok := strings.CutPrefix(text, "dependency ")
	name, ended := strings.CutSuffix(name, " failed")
	a, _, _ := j.arrayOf(head)
	k, found := a.findName(name)
	if !ok || !ended || !found {
		return false
	}
	return j.records.at(head + k).failed()
}

// rerunCleanup replaces the chosen cleanup tasks by all that have ended, and
// lets each wait for all its dependencies again.
func (s *State) rerunCleanup(j *job, chosen []uint32) []uint32 {
	first, _ := slices.BinarySearch(chosen, j.ordinary)
	chosen = chosen[:first]
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

// recountPending counts the dependencies of all tasks for the time after a
// revival: with conditions, one that held may wait again. If all cleanup tasks
// run again, they wait for all of their dependencies anyway. It returns the blocked tasks
// that wait for nothing any more: what they waited for is cancelled, because it turned out
// not to be needed.
func (s *State) recountPending(j *job, plan *revival) (free []uint32) {
	if !j.hasConditions() {
		return nil // only dependencies that completed are not counted, and they are not revived
	}
	end := j.total
	if plan.first() < j.ordinary {
		end = j.ordinary
	}
	known, n := uint32(math.MaxUint32), uint32(0) // the head whose open dependencies n counts
	for i := range end {
		if head := j.head(i); head != known {
			known, n = head, 0
			j.task(i).eachDep(func(dep uint32, when Condition) {
				if when.fate(plan.unit(j, dep), j.tolerance(dep)) != holds {
					n++
				}
			})
		}
		r := j.records.at(i)
		if n == 0 && r.state == Blocked && !j.closed(i) && s.level.current >= freeingLevel {
			free = append(free, i)
		}
		if r.pending == n {
			continue
		}
		r = j.records.writeUnseen(s.own, i)
		r.pending = n
		s.mix(uint64(i))
		s.mixRecord(r)
	}
	return free
}

// freeingLevel is the level from which on a revival frees tasks. Builds of lower ones leave
// them blocked forever, and must decide alike; another revival frees them.
const freeingLevel Level = 3

// changeCause changes why a task is cancelled, or cancels it: a task on which it
// depends has ended, or is cancelled for another cause than before.
func (s *State) changeCause(j *job, i uint32, cause cancelCause) {
	st := j.records.at(i).state
	if st == Cancelled {
		s.setCause(j, i, cause)
		return
	}
	if st != Blocked { // it failed
		s.move(j, i, Blocked)
	}
	s.cancelTask(j, i, "", cause) // renewCancelReasons adds why
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
