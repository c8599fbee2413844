package fsm

import "iter"

// Watches resume by log index: each job and each of its records notes the index
// of the entry that last changed it. That is no part of what the cluster agrees
// on, and in no digest or snapshot: a replica that restored a snapshot knows of
// later changes only, and says so. Outside of a Machine all indexes are 0.

// JobChanged is the log index of the last change of a job that exists, or a later
// one up to which this replica cannot tell.
func (s *State) JobChanged(id JobID) uint64 {
	j := s.sealedJob(id)
	if j == nil {
		return 0
	}
	return j.changed
}

// ChangedTasks iterates over the tasks of a job that look different from how they
// did after the entry at an index, in order; 0 gives all. known is false if
// there is no such job, or if this replica cannot tell, since it restored a
// later snapshot. A task whose worker's name was forgotten has not changed. A
// completed task that is part of the job's result changes when the job completes,
// or goes on.
func (s *State) ChangedTasks(id JobID, after uint64) (tasks iter.Seq[uint32], known bool) {
	j := s.sealedJob(id)
	if j == nil || (after > 0 && after < j.changesKnown) {
		return nil, false
	}
	all, turned := after == 0 || after < j.sealedAt, j.stateChanged > after
	return func(yield func(uint32) bool) {
		for no, p := range j.records.pages {
			if !all && !turned && p.changed <= after {
				continue
			}
			for at := range p.recs {
				i, r := uint32(no*pageSize+at), &p.recs[at] //nolint:gosec // ≤ 1,000,000
				leaf := turned && r.state == Completed && len(j.dependents(i)) == 0
				if (all || leaf || r.changed > after) && !yield(i) {
					return
				}
			}
		}
	}, true
}

// forgetChanges says that the state was read as it was at an index.
func (s *State) forgetChanges(index uint64) {
	for _, p := range s.jobs.pages {
		for _, j := range &p.jobs {
			if j != nil {
				j.changed, j.changesKnown = index, index
			}
		}
	}
}
