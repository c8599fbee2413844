package fsm

import "iter"

// Watches resume by log index: each job and each of its records has the index
// of the entry that last changed it. These indexes are not replicated, and in
// no digest or snapshot. A replica that restored a snapshot knows only later
// changes, and ChangedTasks reports that. Without a Machine all indexes are
// 0.

// JobChanged is the log index of the last change of a job, or a later index
// if this replica does not know it exactly.
func (s *State) JobChanged(id JobID) uint64 {
	j := s.sealedJob(id)
	if j == nil {
		return 0
	}
	return j.changed
}

// ChangedTasks iterates over the tasks of a job that changed after the entry
// at an index, in order; 0 returns all. known is false if the job is unknown,
// or if this replica restored a later snapshot. A task does not change when
// its worker is forgotten. A completed task that is part of the job's result
// changes when the job completes or is revived.
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
				leaf := turned && r.state == Completed && len(j.dependents(i).heads) == 0
				if (all || leaf || r.changed > after) && !yield(i) {
					return
				}
			}
		}
	}, true
}

// forgetChanges marks all jobs as read from a snapshot at an index.
func (t *jobTable) forgetChanges(index uint64) {
	for j := range t.all() {
		j.changed, j.changesKnown = index, index
	}
}
