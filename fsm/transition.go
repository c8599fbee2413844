package fsm

import "fmt"

// legal is the transition table of tasks: legal[from] has a bit for each state
// that may follow. docs/states.md draws it.
var legal = [numStates]uint16{
	Blocked:   1<<Pending | 1<<Cancelled | 1<<Failed,
	Scheduled: 1<<Pending | 1<<Cancelled | 1<<Failed,
	Pending:   1<<Assigned | 1<<Cancelled | 1<<Failed,
	Assigned:  1<<Completed | 1<<Pending | 1<<Scheduled | 1<<Failed | 1<<Dead | 1<<Lost | 1<<Cancelled,
	// People bring them back, or take a dead letter out. What has run once waits
	// for no other task any more.
	Failed:    1<<Pending | 1<<Blocked,
	Cancelled: 1<<Pending | 1<<Blocked,
	Dead:      1<<Pending | 1<<Failed,
	Lost:      1 << Pending,
}

// move takes a task to another state. Callers have checked that it may; an
// illegal one is a fault of this package, and to go on would spread it.
func (s *State) move(j *job, i uint32, to TaskState) *record {
	r := j.records.write(s.own, i)
	if legal[r.state]&(1<<to) == 0 {
		panic(fmt.Sprintf("fsm: task %d/%d: illegal transition %v → %v at entry %d", j.id, i, r.state, to, s.entries))
	}
	s.mix(uint64(j.id)<<32 | uint64(i))
	s.mixRecord(r)
	s.mix(uint64(j.counts[r.state])<<32 | uint64(j.counts[to]))
	j.counts[r.state]--
	r.state = to
	j.counts[to]++
	return r
}

// endTask takes a task to a state that is not completed.
func (s *State) endTask(j *job, i uint32, to TaskState, note uint32) {
	r := s.move(j, i, to)
	r.ended, r.note = s.now, note
	s.mixRecord(r)
}

// cancelTask ends a task as cancelled.
func (s *State) cancelTask(j *job, i uint32, why string) {
	s.endTask(j, i, Cancelled, s.endNote(j, i, why))
}

// text stores a text and gives its note; 0 for none.
func (s *State) text(j *job, why string) uint32 {
	if why == "" {
		return 0
	}
	s.mixString(why)
	return j.notes.addText(s.own, why)
}

// failTask ends a task as failed, dead or lost: what depends on it is
// cancelled, and all that has not started if the job is to stop.
func (s *State) failTask(j *job, i uint32, to TaskState, why string, note uint32, fx *Effects) {
	s.endTask(j, i, to, note)
	if j.err == "" {
		j.err = failure(j.name(i), to, why)
	}
	s.cancelDependents(j, i)
	if j.stopsOnFailure() && !j.stopping {
		s.stop(j, i)
	}
	s.settle(j, fx)
}

// failure says why a job failed.
func failure(name string, state TaskState, why string) string {
	return fmt.Sprintf("task %s %s: %s", name, state, why)
}

// cancelDependents cancels all that waits for a task, at any distance, depth
// first. They are blocked, since the task has not completed.
func (s *State) cancelDependents(j *job, i uint32) {
	stack := []uint32{i}
	for len(stack) > 0 {
		x := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		why := ""
		for _, k := range j.succ.of(x) {
			if j.records.at(k).state == Blocked {
				if why == "" {
					why = "dependency " + j.name(x) + " failed"
				}
				s.cancelTask(j, k, why)
				stack = append(stack, k)
			}
		}
	}
}

// stop cancels all of a job that has not started, because task i failed.
func (s *State) stop(j *job, i uint32) {
	s.mixJob(j)
	j.stopping = true
	why := "job stopped: task " + j.name(i) + " failed"
	for k := range j.total {
		if r := j.records.at(k); !r.state.Terminal() && r.state != Assigned {
			s.cancelTask(j, k, why)
		}
	}
}

// release tells those that depend on a completed task.
func (s *State) release(j *job, i uint32, fx *Effects) {
	for _, k := range j.succ.of(i) {
		r := j.records.write(s.own, k)
		r.pending--
		if r.pending > 0 || r.state != Blocked {
			s.mix(uint64(k))
			s.mixRecord(r)
			continue
		}
		s.mixRecord(s.move(j, k, Pending))
		fx.ready(TaskRef{j.id, k})
	}
}

// settle ends a job whose tasks have all ended.
func (s *State) settle(j *job, fx *Effects) {
	if j.open() > 0 || j.state.Terminal() {
		return
	}
	as := JobCompleted
	switch {
	case j.counts[Failed]+j.counts[Dead]+j.counts[Lost] > 0:
		as = JobFailed
	case j.counts[Cancelled] > 0:
		as = JobCancelled
	}
	s.closeJob(j, as, fx)
}

func (s *State) closeJob(j *job, as JobState, fx *Effects) {
	j.state, j.ended = as, s.now
	s.mixJob(j)
	fx.endedJob(j.id)
}
