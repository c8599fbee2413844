package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is the magic, frames, and an end frame. A frame is its kind (1
// byte), the length of its contents (4 bytes, little endian), the contents,
// and a CRC-32C of all that (4 bytes). A job is a job frame followed by its
// chunks, pages of records, notes and updates. A run of a schedule has a reference
// in place of the chunks that were written before.
const snapshotMagic = "dtasksn3"

type frameKind byte

const (
	frameCluster frameKind = iota + 1
	frameWorker
	frameKeys
	frameJob
	frameChunk
	frameRecords
	frameNotes
	frameEnd
	frameNotifications
	frameCheckpoint
	frameUpdates
	frameResults
	frameLevel
	frameTrust
	frameIdentities
	frameJoinTokens
	frameAuditHeads
	frameBackups
	frameSchedules
	frameSchedule
	frameSharedChunks
	frameClusterName
	frameQueues
	frameNamedLimits
	frameTotals
)

// keysPerFrame is the maximum number of keys of a frame.
const keysPerFrame = 4096

// maxFrame limits the memory that a damaged length can allocate.
const maxFrame = 16 << 20

// WriteSnapshot writes the whole state. It only reads, so that a fork can be
// written while its origin changes.
func (s *State) WriteSnapshot(w io.Writer) error {
	f := frameWriter{flushBytes: 256 << 10}
	f.begin(w, snapshotMagic)
	f.state(s)
	if err := f.finish(); err != nil {
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return nil
}

// state writes all frames of a state.
func (f *frameWriter) state(s *State) {
	f.level(s)
	f.cluster(s)
	f.workers(s)
	f.keys(s)
	f.notifications(s)
	f.results(s)
	f.trust(s)
	f.identities(s)
	f.joinTokens(s)
	f.auditHeads(s)
	f.backups(s)
	f.clusterName(s)
	f.totals(s)
	f.queues(s)
	f.namedLimits(s)
	f.schedules(s)
	f.shareTemplates(s)
	for j := range s.jobs.all() {
		f.job(j)
	}
	f.checkpoints(s)
	f.end(s)
}

// frameWriter writes frames. It keeps the first error. A frame is built in
// the output buffer, after the frames before it and space for its own head.
type frameWriter struct {
	flushBytes int // output is written when it reaches this length

	w      io.Writer
	e      encoder
	c      coder // into e
	at     int   // offset of the current frame
	frames uint64
	sizes  *frameSizes // nil: not counted
	err    error

	// holders has, by the first chunk of a run of a schedule, the job that was written with
	// these chunks; 0 = they are the template of the schedule. nil: runs have their own.
	holders map[*Chunk]JobID
}

// frameHead is the length of kind and length, which precede the contents.
const frameHead = 1 + 4

// begin starts the output with unframed bytes. Frames follow.
func (f *frameWriter) begin(w io.Writer, magic string) {
	f.w, f.frames, f.err, f.c.e = w, 0, nil, &f.e
	f.e.b = append(f.e.b[:0], magic...)
	f.next()
}

// next starts a frame. Its contents are what the encoder appends.
func (f *frameWriter) next() {
	f.at, f.c.last = len(f.e.b), HeldAttempt{}
	f.e.b = append(f.e.b, make([]byte, frameHead)...)
}

// contents is the length of the current frame's contents.
func (f *frameWriter) contents() int { return len(f.e.b) - f.at - frameHead }

// frame ends the current frame.
func (f *frameWriter) frame(kind frameKind) {
	b := f.e.b[f.at:]
	b[0] = byte(kind)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-frameHead)) //nolint:gosec // ≤ maxFrame
	f.e.b = binary.LittleEndian.AppendUint32(f.e.b, crc32.Checksum(b, castagnoli))
	f.frames++
	if f.sizes != nil {
		f.sizes[kind] += uint64(len(f.e.b) - f.at) //nolint:gosec // not negative
	}
	if len(f.e.b) >= f.flushBytes {
		f.flush()
	}
	f.next()
}

func (f *frameWriter) flush() {
	if f.err == nil {
		_, f.err = f.w.Write(f.e.b)
	}
	f.e.b = f.e.b[:0]
}

// finish writes the remaining output. The current frame must be empty.
func (f *frameWriter) finish() error {
	f.e.b = f.e.b[:f.at]
	f.flush()
	return f.err
}

func (f *frameWriter) cluster(s *State) {
	s.clusterFields(&f.c)
	f.frame(frameCluster)
}

func (s *State) clusterFields(c *coder) {
	c.str(&s.clusterID)
	number(c, &s.epoch)
	number(c, &s.term)
	c.str(&s.leader)
	number(c, &s.nextJob)
	number(c, &s.workers.next)
	number(c, &s.notifications.next)
	list(c, &s.replicas, func(r *Replica) { r.fields(c) })
}

func (f *frameWriter) workers(s *State) {
	for _, w := range s.workers.list {
		w.fields(&f.c)
		f.frame(frameWorker)
	}
}

func (w *Worker) fields(c *coder) {
	number(c, &w.ID)
	c.str(&w.Name)
	c.str(&w.Incarnation)
	number(c, &w.Slots)
	c.labels(&w.Labels)
	c.resources(&w.Resources)
	c.str(&w.Version)
	c.str(&w.Address)
	number(c, &w.State)
	c.i64(&w.UpSince)
	c.i64(&w.DownSince)
	c.str(&w.DownReason)
	c.i64(&w.DrainUntil)
	c.str(&w.DrainReason)
}

func (f *frameWriter) keys(s *State) {
	if e := s.keys.encoded; e != nil {
		for i := range e.frames {
			f.e.b = append(f.e.b, e.frames[i].contents...)
			f.frame(frameKeys)
		}
		return
	}
	var sorted []namedKey // memory for those of a shard
	for shard := range shardCount {
		sorted = s.keys.appendSorted(sorted[:0], shard)
		for part := range slices.Chunk(sorted, keysPerFrame) {
			list(&f.c, &part, func(n *namedKey) { n.key.fields(&f.c, &n.name) })
			f.frame(frameKeys)
		}
	}
}

func (k *key) fields(c *coder, name *string) {
	c.str(name)
	k.meaning(c)
}

// meaning codes all but the name.
func (k *key) meaning(c *coder) {
	number(c, &k.job)
	c.i64(&k.expires)
	number(c, &k.version)
	number(c, &k.purged)
	c.digest(&k.digest)
}

// jobParts is what a job's first frame announces of the frames that follow it.
type jobParts struct {
	chunks, pages uint32
	notes         uint32 // bytes
	variants      []variant
	updated       uint32 // tasks
}

func (j *job) fields(c *coder, p *jobParts) {
	number(c, &j.id)
	c.str(&j.key)
	c.bytes(&j.headerBytes)
	number(c, &j.total)
	number(c, &j.state)
	number(c, &j.outcome)
	c.bool(&j.stopping)
	c.str(&j.err)
	c.i64(&j.submitted)
	c.i64(&j.started)
	c.i64(&j.ended)
	c.i64(&j.revived)
	number(c, &j.retries)
	number(c, &j.requeues)
	c.digest(&j.digest)
	number(c, &j.version)
	c.priority(&j.priority)
	number(c, &p.chunks)
	number(c, &p.pages)
	number(c, &p.notes)
	list(c, &p.variants, func(v *variant) { v.fields(c) })
	number(c, &p.updated)
	c.needEnds(&j.needEnds, j.gate != 0)
	c.gate(&j.gate)
}

func (f *frameWriter) job(j *job) {
	chunks := j.chunks
	holder, shared := f.holder(j)
	if shared {
		chunks = nil
	}
	f.jobHead(j, chunks)
	if shared {
		number(&f.c, &holder)
		f.frame(frameSharedChunks)
	}
	f.jobParts(j, chunks)
}

func (f *frameWriter) jobHead(j *job, chunks []*Chunk) {
	j.fields(&f.c, &jobParts{
		chunks: uint32(len(chunks)), pages: uint32(len(j.records.pages)), notes: j.notes.size, //nolint:gosec // ≤ total
		variants: j.updates.variantList(), updated: j.updates.changed(),
	})
	f.frame(frameJob)
}

// jobParts writes the frames that the first one announces.
func (f *frameWriter) jobParts(j *job, chunks []*Chunk) {
	f.chunks(chunks)
	f.jobRest(j)
}

func (f *frameWriter) chunks(list []*Chunk) {
	for _, c := range list {
		f.c.chunk(&c, false)
		f.frame(frameChunk)
	}
}

// jobRest writes the frames that follow the chunks.
func (f *frameWriter) jobRest(j *job) {
	for _, p := range j.records.pages {
		for i := range p.recs {
			f.e.record(&p.recs[i])
		}
		f.frame(frameRecords)
	}
	for frame := range j.notes.frames {
		f.e.b = append(f.e.b, frame...)
		f.frame(frameNotes)
	}
	f.updates(j)
}

// record and decoder.record are not one method of a coder: a snapshot has
// millions of records, and calls for each field would take half of the time
// again.
func (e *encoder) record(r *record) {
	b := binary.AppendVarint(e.b, r.started)
	b = binary.AppendVarint(b, r.ended)
	b = binary.AppendUvarint(b, uint64(r.attempt))
	b = binary.AppendUvarint(b, uint64(r.worker))
	b = binary.AppendUvarint(b, uint64(r.pending))
	b = binary.AppendUvarint(b, uint64(r.failures))
	b = binary.AppendUvarint(b, uint64(r.note))
	b = append(b, byte(r.state), r.losses)
	e.b = b
	e.byte(byte(r.marks)) // a build before alternatives reads a boolean
	e.byte(byte(r.cause))
}

func (d *decoder) record(r *record) {
	r.started, r.ended = d.i64(), d.i64()
	r.attempt, r.worker, r.pending = d.u32(), WorkerID(d.u32()), d.u32()
	r.failures, r.note = d.u32(), d.u32()
	r.state, r.losses = TaskState(d.byte()), d.byte()
	r.marks, r.cause = attemptMarks(d.byte()), cancelCause(d.byte())
	if !r.marks.valid() {
		d.fail(&UnknownError{What: "mark of an attempt"})
	}
	if r.cause >= numCancelCauses {
		d.fail(&UnknownError{What: "cause of a cancellation"})
	}
}

func (f *frameWriter) end(s *State) {
	s.endFields(&f.c, &f.frames)
	f.frame(frameEnd)
}

// endFields codes the last frame. frames is the number of frames before it.
func (s *State) endFields(c *coder, frames *uint64) {
	number(c, &s.entries)
	number(c, &s.digest)
	c.i64(&s.now)
	number(c, frames)
}
