package fsm

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// apply begins an upload. An earlier upload under the same key that was never
// sealed is dropped: its client begins again.
// Rejects: OutOfOrder unless ID is the next, KeyConflict if the key belongs to
// a job that exists, Malformed.
func (o *BeginUpload) apply(s *State, _ *Effects) Reason {
	if o.ID != s.nextJob {
		return OutOfOrder
	}
	if o.Key == "" || tooLong(o.Key) || len(o.Header) > maxBlob || o.Total == 0 || !o.readHeader(s) || len(o.header.GetPolicies()) == 0 {
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
		own: s.own, id: o.ID, key: o.Key, headerBytes: o.Header, header: o.header, total: o.Total, state: JobUploading,
	})
	k := key{job: o.ID, expires: o.KeyExpires}
	s.keys.set(s.own, o.Key, k)
	s.mixKey(o.Key, k)
	s.mix(uint64(o.Total))
	s.mixBytes(o.Header)
	return Accepted
}

// readHeader reads the header unless it is read; false says that it cannot be.
func (o *BeginUpload) readHeader(s *State) bool {
	if o.header != nil {
		return true
	}
	h, err := s.readHeader(o.Header)
	o.Header, o.header = h.encoded, h.header
	return err == nil
}

// header is the header of a job, as it came and as it was read. Neither is ever
// changed.
type header struct {
	encoded []byte
	header  *dtaskv1.JobHeader
}

// readHeader reads a header. Jobs that are submitted together mostly have the same
// one: they share it.
func (s *State) readHeader(encoded []byte) (header, error) {
	if s.lastHeader.header != nil && bytes.Equal(s.lastHeader.encoded, encoded) {
		return s.lastHeader, nil
	}
	h := header{encoded: encoded, header: new(dtaskv1.JobHeader)}
	if err := proto.Unmarshal(encoded, h.header); err != nil {
		return header{encoded: encoded}, fmt.Errorf("reading a header: %w", err)
	}
	s.lastHeader = h
	return h, nil
}

// apply adds tasks to an upload.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed, OutOfOrder unless the chunk
// begins where the last ended and stays within the total, Malformed.
func (o *JobChunk) apply(s *State, _ *Effects) Reason { return s.addChunk(o.Job, o.Chunk) }

// apply adds an array, or further items of one, to an upload.
// Rejects: as JobChunk.
func (o *JobArray) apply(s *State, _ *Effects) Reason { return s.addChunk(o.Job, o.Chunk) }

func (s *State) addChunk(id JobID, c *Chunk) Reason {
	j := s.jobs.get(id)
	switch {
	case j == nil:
		return JobNotFound
	case j.state != JobUploading:
		return AlreadyEnded
	case c.Len() == 0 || c.Size() > maxBlob || c.bad:
		return Malformed
	case c.First != j.records.n || uint64(j.records.n)+uint64(c.Len()) > uint64(j.total): //nolint:gosec // lengths
		return OutOfOrder
	}
	probe := *j
	probe.arrays, probe.left = slices.Clip(probe.arrays), slices.Clip(probe.left)
	if !probe.takeUp(c) {
		return Malformed
	}
	j = s.jobs.write(s.own, id)
	j.arrays, j.left, j.leftOwn, j.ordinary = probe.arrays, probe.left, nil, probe.ordinary
	first, n := j.records.n, uint32(c.Len()) //nolint:gosec // checked against total
	j.chunks = append(j.chunks, c)
	j.sum = c.Sum(j.sum)
	j.counts[Blocked] += n
	if c.ofArray {
		pending := uint32(j.task(first).ndeps) //nolint:gosec // bounded by the chunk
		j.records.growRun(s.own, n, j.total, record{state: Blocked, pending: pending, changed: s.own.at})
	} else {
		j.records.grow(s.own, n, j.total)
		for i := range n {
			_, deps := c.edgesOf(i)
			r := j.records.write(s.own, first+i)
			r.state = Blocked
			r.pending = uint32(deps.n) //nolint:gosec // bounded by the chunk
		}
	}
	j.cleanupCounts[Blocked] = j.records.n - j.ordinary
	s.mix(uint64(j.id)<<32 | uint64(j.sum))
	return Accepted
}

// apply makes an uploaded job exist: tasks without dependencies become ready.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed, OutOfOrder if tasks are
// missing, Malformed if the sum differs or all tasks are clean-up tasks.
func (o *SealUpload) apply(s *State, fx *Effects) Reason {
	j := s.jobs.get(o.Job)
	switch {
	case j == nil:
		return JobNotFound
	case j.state != JobUploading:
		return AlreadyEnded
	case j.records.n != j.total:
		return OutOfOrder
	case j.sum != o.Sum || j.ordinary == 0:
		return Malformed
	}
	j = s.jobs.write(s.own, o.Job)
	j.state, j.submitted, j.digest, j.version = JobPending, s.now, o.Digest, 1
	j.born = s.own.at
	j.succ = j.makeSuccessors()
	k, _ := s.keys.get(j.key)
	k.sealed, k.digest = true, o.Digest
	s.keys.set(s.own, j.key, k)
	j.records.writeRun(s.own, 0, j.ordinary, func(r *record) bool {
		if r.pending > 0 {
			return false
		}
		r.state = Pending
		return true
	}, func(first, n uint32) {
		j.counts[Blocked] -= n
		j.counts[Pending] += n
		fx.readyRun(TaskRef{j.id, first}, n)
	})
	fx.sealed(j.id)
	s.mixKey(j.key, k)
	s.mixJob(j)
	return Accepted
}

// apply removes an upload that was never sealed.
// Rejects: NoSuchJob, AlreadyEnded if it is sealed.
func (o *DropUpload) apply(s *State, _ *Effects) Reason {
	j := s.jobs.get(o.Job)
	switch {
	case j == nil:
		return JobNotFound
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

// apply ends all ordinary tasks of a job, which then ends as cancelled once its
// clean-up tasks have run; with Now they are ended as well, also if they run
// already. Then a job that had failed stays so.
// Rejects: NoSuchJob, Malformed; AlreadyEnded if the job has ended, or without
// Now if only clean-up tasks are left.
func (o *CancelJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobCancelled, o.Reason, o.IncludeCleanup, fx)
}

// apply ends all ordinary tasks of a job as cancelled, which then ends as failed
// once its clean-up tasks have run.
// Rejects: as CancelJob without Now.
func (o *FailJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobFailed, o.Error, false, fx)
}

func (s *State) endJob(id JobID, as JobState, why string, now bool, fx *Effects) Reason {
	j := s.sealedJob(id)
	switch {
	case j == nil:
		return JobNotFound
	case j.state.Terminal() || j.outcome != 0 && !now:
		return AlreadyEnded
	case tooLong(why):
		return Malformed
	}
	j = s.jobs.write(s.own, id)
	s.mixJob(j)
	end := j.ordinary
	if now {
		end = j.total
	}
	for i := range end {
		r := j.records.at(i)
		if r.state.Terminal() {
			continue
		}
		if r.state == Assigned {
			fx.endedAttempt(HeldAttempt{AttemptRef{TaskRef{id, i}, r.attempt}, r.worker})
		}
		s.cancelTask(j, i, why)
	}
	if j.outcome == 0 {
		j.stopping, j.err = true, why
		s.decide(j, as, fx)
	} else if j.outcome == JobCompleted && failedOf(&j.cleanupCounts) == 0 {
		j.err = why
	}
	s.settle(j, fx)
	return Accepted
}

// apply ends one task, or those of its array that have not ended, and with them
// all that depend on it.
// Rejects: NoSuchJob, NoSuchTask, also for an array of a listed task;
// AlreadyEnded, Malformed.
func (o *CancelTask) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Task.Job)
	switch {
	case j == nil:
		return JobNotFound
	case o.Task.Index >= j.total:
		return TaskNotFound
	}
	first, n := o.Task.Index, uint32(1)
	if o.WholeArray {
		if _, within := j.arrayAt(first); !within {
			return TaskNotFound
		}
		first = j.head(first)
		n = j.span(first)
	}
	open := first
	for open < first+n && j.records.at(open).state.Terminal() {
		open++
	}
	switch {
	case open == first+n:
		return AlreadyEnded
	case tooLong(o.Reason):
		return Malformed
	}
	j = s.jobs.write(s.own, j.id)
	for i := open; i < first+n; i++ {
		r := j.records.at(i)
		if r.state.Terminal() {
			continue
		}
		if r.state == Assigned {
			fx.endedAttempt(HeldAttempt{AttemptRef{TaskRef{j.id, i}, r.attempt}, r.worker})
		}
		s.cancelTask(j, i, o.Reason)
		r = j.records.write(s.own, i)
		r.cancelledByUser = true
		s.mixRecord(r)
	}
	s.cancelDependents(j, open)
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
		return JobNotFound
	case o.Task.Index >= j.total:
		return TaskNotFound
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
		return JobNotFound
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
		return JobNotFound
	case !j.state.Terminal():
		return WrongState
	}
	s.mixJob(j)
	s.countLetters(j, -1)
	s.jobs.remove(s.own, id)
	return Accepted
}
