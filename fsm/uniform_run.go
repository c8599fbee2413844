package fsm

import "iter"

// UniformRun is a run of tasks that are equal for scheduling.
type UniformRun struct {
	TaskRun

	State TaskState
	// The following fields are only for pending tasks.
	Policy  uint32 // number of their policy
	Fresh   bool   // no task has had an attempt
	Cleanup bool   // they are cleanup tasks
}

// UniformRuns divides a run into uniform ones, in order: consecutive tasks in
// one state. Pending tasks must also have one policy, be all fresh or none,
// be all cleanup tasks or none, and be all of one array or of none. It costs
// a few ns for each task. The State must not change meanwhile. A run that
// extends beyond the job ends with it.
func (s *State) UniformRuns(run TaskRun) iter.Seq[UniformRun] {
	return func(yield func(UniformRun) bool) {
		j := s.sealedJob(run.Job)
		if j == nil || run.Index >= j.total {
			return
		}
		end := run.Index + min(run.N, j.total-run.Index)
		for i := run.Index; i < end; {
			a := j.uniformRun(i, end)
			a.Job = run.Job
			if !yield(a) {
				return
			}
			i += a.N
		}
	}
}

// uniformRun returns the uniform run that starts with a task.
func (j *job) uniformRun(i, end uint32) UniformRun {
	first := j.records.at(i)
	a := UniformRun{TaskRun: TaskRun{TaskRef: TaskRef{Index: i}, N: 1}, State: first.state}
	if first.state != Pending {
		for i++; i < end && j.records.at(i).state == a.State; i++ {
			a.N++
		}
		return a
	}
	a.Policy, a.Fresh, a.Cleanup = j.policyNumber(i), first.attempt == 0, j.isCleanup(i)
	end = j.samePolicy(i, min(end, j.unitEnd(i)), a.Policy)
	for i++; i < end; i++ {
		if r := j.records.at(i); r.state != Pending || (r.attempt == 0) != a.Fresh {
			break
		}
		a.N++
	}
	return a
}

// samePolicy returns the end of the tasks from i on, at most end, that have a
// policy. They are all of one array or of none.
func (j *job) samePolicy(i, end, policy uint32) uint32 {
	if j.policies() <= 1 {
		return end
	}
	_, ofArray := j.arrayAt(i)
	for i < end && j.policyNumber(i) == policy {
		i++
		if j.updates != nil {
			continue // any task may have its own
		}
		if ofArray {
			return end
		}
		if c := j.chunk(i - 1); !c.mixedPolicies {
			i = c.First + uint32(len(c.off)) //nolint:gosec // ≤ 1,000,000
		}
	}
	return min(i, end)
}

// unitEnd is the end of the array that a task is in, or of the ordinary or
// cleanup tasks around it that are in no array.
func (j *job) unitEnd(i uint32) uint32 {
	end := j.total
	if i < j.ordinary {
		end = j.ordinary
	}
	at, within := j.arrayAt(i)
	switch {
	case within:
		end = min(end, j.arrays[at].end())
	case at+1 < len(j.arrays):
		end = min(end, j.arrays[at+1].first)
	}
	return end
}
