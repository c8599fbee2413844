package fsm

import (
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// apply begins an upload. An earlier upload under the same key that was never
// sealed is dropped: its client begins again.
// Rejects: OutOfOrder unless ID is the next, KeyConflict if the key belongs to
// a job that exists, Malformed.
func (o *JobBegin) apply(s *State, _ *Effects) Reason {
	if o.ID != s.nextJob {
		return OutOfOrder
	}
	header := new(dtaskv1.JobHeader)
	if o.Key == "" || tooLong(o.Key) || len(o.Header) > maxBlob || o.Total == 0 || proto.Unmarshal(o.Header, header) != nil || len(header.GetPolicies()) == 0 {
		return Malformed
	}
	if k, ok := s.keys.get(o.Key); ok {
		if k.sealed {
			return KeyConflict
		}
		s.jobs.remove(s.own, k.job)
	}
	s.nextJob++
	s.jobs.put(s.own, &job{
		own: s.own, id: o.ID, key: o.Key, headerBytes: o.Header, header: header, total: o.Total, state: JobUploading,
	})
	k := key{job: o.ID, expires: o.KeyExpires}
	s.keys.set(s.own, o.Key, k)
	s.mixKey(o.Key, k)
	s.mix(uint64(o.Total))
	s.mixBytes(o.Header)
	return Accepted
}

// apply adds tasks to an upload.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed, OutOfOrder unless the chunk
// begins where the last ended and stays within the total, Malformed.
func (o *JobChunk) apply(s *State, _ *Effects) Reason {
	j := s.jobs.get(o.Job)
	switch {
	case j == nil:
		return NoSuchJob
	case j.state != JobUploading:
		return AlreadyEnded
	case o.Chunk.Len() == 0 || o.Chunk.Size() > maxBlob || o.Chunk.bad:
		return Malformed
	case o.Chunk.First != j.records.n || uint64(j.records.n)+uint64(o.Chunk.Len()) > uint64(j.total): //nolint:gosec // lengths
		return OutOfOrder
	}
	for i := range o.Chunk.off {
		if t := o.Chunk.at(uint32(i)); int(t.policy) >= len(j.header.GetPolicies()) || len(t.name) == 0 { //nolint:gosec // index
			return Malformed
		}
	}
	j = s.jobs.write(s.own, o.Job)
	first, n := j.records.n, uint32(o.Chunk.Len()) //nolint:gosec // checked against total
	j.chunks = append(j.chunks, o.Chunk)
	j.sum = o.Chunk.Sum(j.sum)
	j.records.grow(s.own, n, j.total)
	j.counts[Blocked] += n
	for i := range n {
		r := j.records.write(s.own, first+i)
		r.state = Blocked
		r.pending = uint32(o.Chunk.at(i).ndeps) //nolint:gosec // bounded by the chunk
	}
	s.mix(uint64(j.id)<<32 | uint64(j.sum))
	return Accepted
}

// apply makes an uploaded job exist: tasks without dependencies become ready.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed, OutOfOrder if tasks are
// missing, Malformed if the sum differs.
func (o *JobSeal) apply(s *State, fx *Effects) Reason {
	j := s.jobs.get(o.Job)
	switch {
	case j == nil:
		return NoSuchJob
	case j.state != JobUploading:
		return AlreadyEnded
	case j.records.n != j.total:
		return OutOfOrder
	case j.sum != o.Sum:
		return Malformed
	}
	j = s.jobs.write(s.own, o.Job)
	j.state, j.submitted, j.digest = JobPending, s.now, o.Digest
	j.succ = makeSuccessors(j.chunks, j.total)
	k, _ := s.keys.get(j.key)
	k.sealed, k.digest = true, o.Digest
	s.keys.set(s.own, j.key, k)
	for i := range j.total {
		if j.records.at(i).pending == 0 {
			j.records.write(s.own, i).state = Pending
			j.counts[Blocked]--
			j.counts[Pending]++
			fx.ready(TaskRef{j.id, i})
		}
	}
	fx.sealed(j.id)
	s.mixKey(j.key, k)
	s.mixJob(j)
	return Accepted
}

// apply removes an upload that was never sealed.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed.
func (o *JobDrop) apply(s *State, _ *Effects) Reason {
	j := s.jobs.get(o.Job)
	switch {
	case j == nil:
		return NoSuchJob
	case j.state != JobUploading:
		return AlreadyEnded
	}
	if k, ok := s.keys.get(j.key); ok && k.job == j.id {
		s.keys.delete(s.own, j.key)
	}
	s.jobs.remove(s.own, j.id)
	s.mix(uint64(o.Job))
	return Accepted
}

// apply ends a job and all its tasks.
// Rejects: NoSuchJob, AlreadyEnded, Malformed.
func (o *CancelJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobCancelled, o.Reason, fx)
}

// apply ends a job as failed and all its tasks as cancelled.
// Rejects: NoSuchJob, AlreadyEnded, Malformed.
func (o *FailJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobFailed, o.Error, fx)
}

func (s *State) endJob(id JobID, as JobState, why string, fx *Effects) Reason {
	j := s.sealedJob(id)
	switch {
	case j == nil:
		return NoSuchJob
	case j.state.Terminal():
		return AlreadyEnded
	case tooLong(why):
		return Malformed
	}
	j = s.jobs.write(s.own, id)
	s.mixJob(j)
	j.stopping, j.err = true, why
	for i := range j.total {
		r := j.records.at(i)
		if r.state.Terminal() {
			continue
		}
		if r.state == Assigned {
			fx.endedAttempt(HeldItem{AttemptRef{TaskRef{id, i}, r.attempt}, r.worker})
		}
		s.cancelTask(j, i, why)
	}
	s.closeJob(j, as, fx)
	return Accepted
}

// apply ends one task, and with it all that depend on it.
// Rejects: NoSuchJob, NoSuchTask, AlreadyEnded, Malformed.
func (o *CancelTask) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Task.Job)
	switch {
	case j == nil:
		return NoSuchJob
	case o.Task.Index >= j.total:
		return NoSuchTask
	}
	r := j.records.at(o.Task.Index)
	switch {
	case r.state.Terminal():
		return AlreadyEnded
	case tooLong(o.Reason):
		return Malformed
	}
	if r.state == Assigned {
		fx.endedAttempt(HeldItem{AttemptRef{o.Task, r.attempt}, r.worker})
	}
	j = s.jobs.write(s.own, j.id)
	s.cancelTask(j, o.Task.Index, o.Reason)
	r = j.records.write(s.own, o.Task.Index)
	r.byHand = true
	s.mixRecord(r)
	s.cancelDependents(j, o.Task.Index)
	s.settle(j, fx)
	return Accepted
}

// apply ends a task without a live attempt as failed.
// Rejects: NoSuchJob, NoSuchTask, AlreadyEnded, WrongState if it is assigned,
// Malformed.
func (o *FailTask) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Task.Job)
	switch {
	case j == nil:
		return NoSuchJob
	case o.Task.Index >= j.total:
		return NoSuchTask
	}
	switch r := j.records.at(o.Task.Index); {
	case r.state.Terminal():
		return AlreadyEnded
	case r.state == Assigned:
		return WrongState
	case tooLong(o.Error):
		return Malformed
	}
	j = s.jobs.write(s.own, j.id)
	s.failTask(j, o.Task.Index, Failed, o.Error, s.endNote(j, o.Task.Index, o.Error), fx)
	return Accepted
}

// apply removes keys. What is refused stays; the others go.
func (o *ForgetKeys) apply(s *State, _ *Effects) Reason { return each(o.Keys, s.forgetKey) }

// forgetKey removes a key.
// Rejects: NoSuchJob if it is not there, WrongState while its job is being
// uploaded.
func (s *State) forgetKey(name string) Reason {
	k, ok := s.keys.get(name)
	switch {
	case !ok:
		return NoSuchJob
	case !k.sealed:
		return WrongState
	}
	s.mixKey(name, k)
	s.keys.delete(s.own, name)
	return Accepted
}

// apply removes jobs. What is refused stays; the others go.
func (o *ForgetJobs) apply(s *State, _ *Effects) Reason { return each(o.IDs, s.forgetJob) }

// forgetJob removes a job that has ended. Its key stays until it expires, so
// that a late repeat is not run.
// Rejects: NoSuchJob, WrongState if it has not ended.
func (s *State) forgetJob(id JobID) Reason {
	j := s.sealedJob(id)
	switch {
	case j == nil:
		return NoSuchJob
	case !j.state.Terminal():
		return WrongState
	}
	s.mixJob(j)
	s.jobs.remove(s.own, id)
	return Accepted
}
