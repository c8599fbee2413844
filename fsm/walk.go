package fsm

import "iter"

// The walks below visit all tasks of a job in much less time than one lookup for each.

// AttemptState is the last attempt of a task, 0 if it had none, and the state of the
// task.
type AttemptState struct {
	Attempt uint32
	State   TaskState
	// Runs is set for an assigned task whose at-most-once attempt has its start in the
	// log. Only its worker knows whether any other attempt runs.
	Runs bool
}

func (r *record) attemptState() AttemptState { return AttemptState{r.attempt, r.state, r.runs()} }

// runs reports whether the task is assigned and the start of its attempt is logged.
func (r *record) runs() bool { return r.state == Assigned && r.marks.startLogged() }

// AttemptStates iterates over the tasks of a sealed job from first up to but not
// including end, in order. It visits nothing if the job is unknown.
func (s *State) AttemptStates(id JobID, first, end uint32) iter.Seq2[uint32, AttemptState] {
	return func(yield func(uint32, AttemptState) bool) {
		i := first
		for page := range s.recordPages(id, first, end) {
			for k := range page {
				if !yield(i, page[k].attemptState()) {
					return
				}
				i++
			}
		}
	}
}

// CountStates counts the tasks of a sealed job from first up to but not including end
// by TaskState. running is the number of those that AttemptState.Runs is true for.
func (s *State) CountStates(id JobID, first, end uint32) (counts [numStates]uint32, running uint32) {
	for page := range s.recordPages(id, first, end) {
		for k := range page {
			counts[page[k].state]++
			if page[k].runs() {
				running++
			}
		}
	}
	return counts, running
}

// recordPages iterates over the records of a sealed job's tasks, page by page.
func (s *State) recordPages(id JobID, first, end uint32) iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		j := s.sealedJob(id)
		if j == nil {
			return
		}
		last := min(end, j.total)
		for i := first; i < last; {
			page := j.records.pages[i/pageSize].recs[i%pageSize:]
			page = page[:min(uint32(len(page)), last-i)] //nolint:gosec // a page is small
			if !yield(page) {
				return
			}
			i += uint32(len(page)) //nolint:gosec // a page is small
		}
	}
}

// CountByState counts the sealed jobs and their tasks by state. Each state has an
// entry. It visits all jobs, and no task.
func (s *State) CountByState() (jobs map[JobState]uint64, tasks map[TaskState]uint64) {
	var byJob [numJobStates]uint64
	var byTask [numStates]uint64
	for j := range s.jobs.all() {
		byJob[j.state]++
		if j.state == JobUploading {
			continue
		}
		for state, n := range j.counts {
			byTask[state] += uint64(n)
		}
	}
	jobs, tasks = make(map[JobState]uint64), make(map[TaskState]uint64)
	for state := JobPending; state < numJobStates; state++ {
		jobs[state] = byJob[state]
	}
	for state := Blocked; state < numStates; state++ {
		tasks[state] = byTask[state]
	}
	return jobs, tasks
}

// WaitingJobs are the numbers of jobs whose ordinary tasks are blocked by something outside of
// the job, by what they wait for first.
type WaitingJobs struct {
	OtherJobs   uint64 // jobs that it needs have not ended
	StartTime   uint64 // it starts later
	Concurrency uint64 // other jobs hold its concurrency key, or the leader opens its gate next
}

// CountWaiting counts the jobs that wait at a time, in milliseconds since 1970. It visits all
// jobs, but not their tasks.
func (s *State) CountWaiting(nowMS int64) (n WaitingJobs) {
	for j := range s.jobs.all() {
		switch {
		case j.state == JobUploading || j.state.Terminal():
		case j.waiting():
			n.OtherJobs++
		case !j.gated():
		case startMS(j.header, j.submitted) > nowMS:
			n.StartTime++
		default:
			n.Concurrency++
		}
	}
	return n
}

// Aggregated counts the tasks that are part of a sealed job's result: the job and the
// tasks have completed, and no other task depends on them.
func (s *State) Aggregated(id JobID) uint32 {
	if j := s.sealedJob(id); j != nil {
		return j.aggregated()
	}
	return 0
}

// LevelCounts counts the tasks of a sealed job by topological level: level 0 has those
// without dependencies, every other task is one above the highest that it depends on.
// It returns nil if the job is unknown. It visits each dependency once.
func (s *State) LevelCounts(id JobID) []uint32 {
	j := s.sealedJob(id)
	if j == nil {
		return nil
	}
	var counts []uint32
	level := make([]uint32, j.total) // by task; of an array, only of its first task
	add := func(self, n uint32) {
		for int(level[self]) >= len(counts) {
			counts = append(counts, 0)
		}
		counts[level[self]] += n
	}
	for _, c := range j.chunks {
		switch {
		case c.array != nil:
			for _, dep := range c.array.Deps {
				level[c.First] = max(level[c.First], level[dep]+1)
			}
		case !c.ofArray:
			for i := range c.off {
				_, deps := c.edgesOf(uint32(i)) //nolint:gosec // ≤ 1,000,000
				deps.each(func(dep uint32, _ Condition) { level[deps.self] = max(level[deps.self], level[dep]+1) })
				add(deps.self, 1)
			}
		}
	}
	for _, a := range j.arrays {
		add(a.first, a.count)
	}
	return counts
}
