package fsm

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// BeginUpload begins the upload of a job. Chunks with its tasks follow; the
// job exists from SealUpload on.
type BeginUpload struct {
	ID         JobID  // must be the next number
	Key        string // idempotency key; never empty
	KeyExpires int64  // ms; when the key may be forgotten
	Header     []byte // dtask.v1.JobHeader
	Total      uint32 // tasks to come, ≥ 1

	header *dtaskv1.JobHeader // decoded Header: a leader applies an operation twice
}

func (*BeginUpload) kind() opKind { return 4 }

func (o *BeginUpload) fields(c *coder) {
	number(c, &o.ID)
	c.str(&o.Key)
	c.i64(&o.KeyExpires)
	c.clone(&o.Header)
	number(c, &o.Total)
}

func (o *BeginUpload) size() int { return fixedFields + len(o.Header) + len(o.Key) }

// fixedFields is an upper estimate of the kind and the numbers of an
// operation, in bytes.
const fixedFields = 32

// apply begins an upload. It drops an unsealed upload with the same key,
// whose client begins again.
// Rejects: OutOfOrder unless ID is the next number, KeyConflict if a job has
// the key, Malformed.
func (o *BeginUpload) apply(s *State, _ *Effects) Reason {
	if o.ID != s.nextJob {
		return OutOfOrder
	}
	if o.Key == "" || tooLong(o.Key) || len(o.Header) > maxBlob || o.Total == 0 || !o.decodeHeader(s) || len(o.header.GetPolicies()) == 0 || !checkNeeds(o.header, o.ID) {
		return Malformed
	}
	if k, ok := s.keys.get(o.Key); ok {
		if k.sealed() {
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

// decodeHeader decodes the header unless that is done, and reports whether it
// is well-formed.
func (o *BeginUpload) decodeHeader(s *State) bool {
	if o.header != nil {
		return true
	}
	h, err := s.headers.decode(o.Header)
	o.Header, o.header = h.encoded, h.decoded
	return err == nil
}

// header is the header of a job, encoded and decoded. Neither ever changes.
type header struct {
	encoded []byte
	decoded *dtaskv1.JobHeader
}

// headerCache keeps the last header, which saves decoding it again. Replicas
// need not agree on it.
type headerCache struct{ last header }

// decode decodes a header. Jobs that are submitted together usually have the
// same one and share it.
func (c *headerCache) decode(encoded []byte) (header, error) {
	if c.last.decoded != nil && bytes.Equal(c.last.encoded, encoded) {
		return c.last, nil
	}
	h := header{encoded: encoded, decoded: new(dtaskv1.JobHeader)}
	if err := proto.Unmarshal(encoded, h.decoded); err != nil {
		return header{encoded: encoded}, fmt.Errorf("decoding header: %w", err)
	}
	c.last = h
	return h, nil
}

// AddChunk adds the next tasks of a job that is being uploaded: listed tasks,
// an array, or more items of an array.
type AddChunk struct {
	Job   JobID
	Chunk *Chunk
}

func (*AddChunk) kind() opKind { return 5 }

func (o *AddChunk) fields(c *coder) {
	number(c, &o.Job)
	c.chunk(&o.Chunk, true)
}

func (o *AddChunk) size() int { return fixedFields + o.Chunk.Size() }

// apply adds tasks to an upload.
// Rejects: JobNotFound, AlreadyEnded if it is sealed, OutOfOrder unless the
// chunk starts where the last one ended and stays within the total,
// Malformed.
func (o *AddChunk) apply(s *State, _ *Effects) Reason {
	j, c := s.jobs.get(o.Job), o.Chunk
	switch {
	case j == nil:
		return JobNotFound
	case j.state != JobUploading:
		return AlreadyEnded
	case c.Len() == 0 || c.Size() > maxBlob || c.invalid:
		return Malformed
	case c.First != j.records.n || uint64(j.records.n)+uint64(c.Len()) > uint64(j.total): //nolint:gosec // lengths
		return OutOfOrder
	}
	probe := *j
	probe.arrays, probe.ends = slices.Clip(probe.arrays), slices.Clip(probe.ends)
	if !probe.include(c) {
		return Malformed
	}
	j = s.jobs.write(s.own, o.Job)
	j.arrays, j.ends, j.endsOwn, j.ordinary = probe.arrays, probe.ends, nil, probe.ordinary
	j.chunks = append(j.chunks, c)
	j.sum = c.Sum(j.sum)
	s.addRecords(j, c)
	s.mix(uint64(j.id)<<32 | uint64(j.sum))
	return Accepted
}

// addRecords adds the records of the tasks of the next chunk.
func (s *State) addRecords(j *job, c *Chunk) {
	first, n := j.records.n, uint32(c.Len()) //nolint:gosec // ≤ total
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
	j.cleanupCounts[Blocked] = j.records.n - min(j.ordinary, j.records.n)
}

// SealUpload makes an uploaded job exist.
type SealUpload struct {
	Job    JobID
	Sum    uint32   // CRC-32C of the blobs of all chunks
	Digest [16]byte // of header and tasks, for the idempotency key
}

func (*SealUpload) kind() opKind { return 6 }

func (o *SealUpload) fields(c *coder) {
	number(c, &o.Job)
	number(c, &o.Sum)
	c.digest(&o.Digest)
}

func (o *SealUpload) size() int { return fixedFields }

// apply makes an uploaded job exist. Tasks without dependencies become ready,
// unless the job waits for others.
// Rejects: JobNotFound, AlreadyEnded if it is sealed, OutOfOrder if tasks are
// missing, Malformed if the sum differs or all tasks are cleanup tasks,
// NeedNotFound if a job that it needs is unknown, QueueNotFound if its queue is, LimitNotFound if a limit that it uses is.
func (o *SealUpload) apply(s *State, fx *Effects) Reason { return o.seal(s, gateNone, fx) }

func (o *SealUpload) seal(s *State, g gate, fx *Effects) Reason {
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
	if s.level.current >= queueLevel && !s.hasQueue(j.header.GetQueue()) {
		return QueueNotFound
	}
	if s.level.current >= namedLimitLevel && !s.knowsUses(j.header) {
		return LimitNotFound
	}
	needEnds, known := s.needsNow(j)
	if !known {
		return NeedNotFound
	}
	if g != gateNone {
		if r := s.admit(j.header, overlapOf(j.header), j.id, fx); r != Accepted {
			return r
		}
		needEnds, _ = s.needsNow(j) // a job that it needs may have been replaced
	}
	j = s.jobs.write(s.own, o.Job)
	j.digest, j.gate = o.Digest, g
	j.succ = j.makeSuccessors()
	k, _ := s.keys.get(j.key)
	k.version, k.digest = submittedVersion, o.Digest
	s.keys.set(s.own, j.key, k)
	s.submit(j, needEnds, fx)
	s.mixKey(j.key, k)
	s.mixJob(j)
	return Accepted
}

// submit makes a job exist that is complete. Tasks without dependencies become ready,
// unless the job waits for others or its gate is closed.
func (s *State) submit(j *job, needEnds []JobState, fx *Effects) {
	j.state, j.submitted, j.version = JobPending, s.now, submittedVersion
	j.sealedAt = s.own.at
	fx.sealed(j.id)
	s.jobEvent(JobSubmittedEvent, j)
	s.joinKey(j)
	if needEnds == nil {
		s.enter(j, fx)
	} else {
		s.addNeeds(j, needEnds, fx)
	}
}

// DropUpload removes an upload that was never sealed.
type DropUpload struct {
	Job JobID
}

func (*DropUpload) kind() opKind { return 7 }

func (o *DropUpload) fields(c *coder) { number(c, &o.Job) }

// apply removes an unsealed upload.
// Rejects: JobNotFound, AlreadyEnded if it is sealed.
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
