package fsm

import "slices"

// Purge removes dead letters from the queue. Their tasks end as failed.
type Purge struct {
	Job   JobID
	Tasks []uint32 // ascending; empty: all of the job
	Precondition
}

func (*Purge) kind() opKind { return 29 }

func (o *Purge) fields(c *coder) {
	number(c, &o.Job)
	c.indexes(&o.Tasks)
	o.Precondition.fields(c)
}

// apply removes dead letters.
// Rejects: JobNotFound, TaskNotFound, KeyConflict if the key is known: a second
// copy changes nothing; VersionMismatch, Malformed; WrongState if one of the
// tasks is not dead, or if none is.
func (o *Purge) apply(s *State, _ *Effects) Reason {
	j := s.sealedJob(o.Job)
	if j == nil {
		return JobNotFound
	}
	if r := o.check(s, j); r != Accepted {
		return r
	}
	if r := j.selectable(o.Tasks, func(st TaskState) bool { return st == Dead }); r != Accepted {
		return r
	}
	if j.counts[Dead] == 0 {
		return WrongState
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	purged := uint32(0)
	for i := range j.total {
		_, named := slices.BinarySearch(o.Tasks, i)
		if j.records.at(i).state == Dead && (named || len(o.Tasks) == 0) {
			s.mixRecord(s.move(j, i, Failed))
			purged++
		}
	}
	o.changed(s, j, purged)
	s.mixJob(j)
	return Accepted
}
