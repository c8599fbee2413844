package fsm

import "iter"

// Alike is a run of tasks that are the same to who hands them to workers.
type UniformRun struct {
	TaskRun

	State TaskState
	// The rest is of pending tasks only.
	Policy  uint32 // number of their policy
	Fresh   bool   // none has had an attempt
	Cleanup bool   // they are cleanup tasks
}

// Alike yields the tasks of a run in their order, those together that stand side by
// side in one state; pending ones only if they have one policy, are all fresh or none
// is, are all cleanup tasks or none is, and are all of one array or of none. It costs
// a few ns for each task. The State must not be changed meanwhile; a run
// that reaches beyond the job ends with it.
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

// alike is the run that begins with a task.
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

// samePolicy is how far from i on, and at most to end, all tasks have a policy. They are
// all of one array, or of none.
func (j *job) samePolicy(i, end, policy uint32) uint32 {
	if j.policies() <= 1 {
		return end
	}
	_, ofArray := j.arrayAt(i)
	for i < end && j.policyNumber(i) == policy {
		i++
		if j.updates != nil {
			continue // each for itself
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

// unitEnd is the end of the array that a task is of, or of the ordinary or the
// cleanup tasks around it that are of none.
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
