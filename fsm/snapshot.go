package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is the magic, then frames, then an end frame. A frame is its kind
// (1 byte), the length of its contents (4 bytes, little endian), the contents,
// and a CRC-32C over all of that (4 bytes). A job is a job frame followed by
// its chunks, pages of records and notes.
const snapshotMagic = "dtasksn1"

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
	frameNotices
	frameCheckpoint
	frameUpdates
	frameResults
	frameArray
)

// maxFrame bounds what a damaged length can make a reader allocate.
const maxFrame = 16 << 20

// WriteSnapshot writes the whole state. It only reads, so that a fork can be
// written while its origin goes on.
func (s *State) WriteSnapshot(w io.Writer) error {
	f := frameWriter{ahead: 256 << 10}
	f.begin(w, snapshotMagic)
	f.cluster(s)
	f.workers(s)
	f.keys(s)
	f.notices(s)
	f.results(s)
	for _, p := range s.jobs.pages {
		for _, j := range &p.jobs {
			if j != nil {
				f.job(j)
			}
		}
	}
	f.checkpoints(s)
	f.end(s)
	if err := f.finish(); err != nil {
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return nil
}

// frameWriter writes frames; the first error sticks. A frame is made where it is written
// from, behind those before it and room for what stands in front of its contents.
type frameWriter struct {
	ahead int // bytes that are written together

	w      io.Writer
	e      encoder
	at     int // where the frame begins that is being made
	frames uint64
	err    error
}

// frameHead is what stands in front of a frame's contents: kind and length.
const frameHead = 1 + 4

// begin begins to write: what is not framed, then frames.
func (f *frameWriter) begin(w io.Writer, magic string) {
	f.w, f.frames, f.err = w, 0, nil
	f.e.b = append(f.e.b[:0], magic...)
	f.next()
}

// next begins a frame. Its contents are what the encoder appends.
func (f *frameWriter) next() {
	f.at = len(f.e.b)
	f.e.b = append(f.e.b, make([]byte, frameHead)...)
}

// contents is how many bytes the frame has so far that is being made.
func (f *frameWriter) contents() int { return len(f.e.b) - f.at - frameHead }

// frame ends a frame.
func (f *frameWriter) frame(kind frameKind) {
	b := f.e.b[f.at:]
	b[0] = byte(kind)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-frameHead)) //nolint:gosec // ≤ maxFrame
	f.e.b = binary.LittleEndian.AppendUint32(f.e.b, crc32.Checksum(b, castagnoli))
	f.frames++
	if len(f.e.b) >= f.ahead {
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

// finish writes what is not written yet. Nothing must have been added to the last frame.
func (f *frameWriter) finish() error {
	f.e.b = f.e.b[:f.at]
	f.flush()
	return f.err
}

func (f *frameWriter) cluster(s *State) {
	e := &f.e
	e.str(s.clusterID)
	e.u64(s.epoch)
	e.u64(s.term)
	e.str(s.leader)
	e.u64(uint64(s.nextJob))
	e.u64(uint64(s.nextWorker))
	e.u64(s.nextNotice)
	e.u64(uint64(len(s.replicas)))
	for _, r := range s.replicas {
		r.encode(e)
	}
	f.frame(frameCluster)
}

func (f *frameWriter) workers(s *State) {
	for _, w := range s.workers {
		f.e.worker(w)
		f.frame(frameWorker)
	}
}

func (e *encoder) worker(w *Worker) {
	join := RegisterWorker{
		ID: w.ID, Name: w.Name, Incarnation: w.Incarnation, Slots: w.Slots, Labels: w.Labels,
		Resources: w.Resources, Version: w.Version, Address: w.Address,
	}
	join.encode(e)
	e.byte(byte(w.State))
	e.i64(w.UpSince)
	e.i64(w.DownSince)
	e.str(w.DownReason)
	e.i64(w.DrainUntil)
	e.str(w.DrainReason)
}

func (f *frameWriter) keys(s *State) {
	for shard := range shardCount {
		var names []string
		for name := range s.keys.scan(shard) {
			names = append(names, name)
		}
		slices.Sort(names)
		for part := range slices.Chunk(names, 4096) {
			f.e.u64(uint64(len(part)))
			for _, name := range part {
				k, _ := s.keys.get(name)
				f.e.str(name)
				f.e.u64(uint64(k.job))
				f.e.i64(k.expires)
				f.e.bool(k.sealed)
				f.e.u64(uint64(k.version))
				f.e.b = append(f.e.b, k.digest[:]...)
			}
			f.frame(frameKeys)
		}
	}
}

func (f *frameWriter) job(j *job) {
	e := &f.e
	e.u64(uint64(j.id))
	e.str(j.key)
	e.bytes(j.headerBytes)
	e.u64(uint64(j.total))
	e.byte(byte(j.state))
	e.byte(byte(j.outcome))
	e.bool(j.stopping)
	e.str(j.err)
	e.i64(j.submitted)
	e.i64(j.started)
	e.i64(j.ended)
	e.i64(j.revived)
	e.u64(j.retries)
	e.u64(j.recovered)
	e.b = append(e.b, j.digest[:]...)
	e.u64(uint64(len(j.chunks)))
	e.u64(uint64(len(j.records.pages)))
	e.u64(uint64(j.notes.size))
	e.u64(uint64(j.version))
	e.u64(uint64(j.priority)) //nolint:gosec // an enum
	e.variants(j.updates)
	e.u64(uint64(j.updates.changed()))
	f.frame(frameJob)
	for _, c := range j.chunks {
		c.encode(e)
		if c.IsArray() {
			f.frame(frameArray)
		} else {
			f.frame(frameChunk)
		}
	}
	for _, p := range j.records.pages {
		for i := range p.recs {
			e.record(&p.recs[i])
		}
		f.frame(frameRecords)
	}
	for frame := range j.notes.frames {
		e.b = append(e.b, frame...)
		f.frame(frameNotes)
	}
	f.updates(j)
}

func (e *encoder) record(r *record) {
	e.i64(r.started)
	e.i64(r.ended)
	e.u64(uint64(r.attempt))
	e.u64(uint64(r.worker))
	e.u64(uint64(r.pending))
	e.u64(uint64(r.failures))
	e.u64(uint64(r.note))
	e.byte(byte(r.state))
	e.bool(r.startLogged)
	e.bool(r.cancelledByUser)
	e.byte(r.losses)
}

func (d *decoder) record(r *record) {
	r.started = d.i64()
	r.ended = d.i64()
	r.attempt = d.u32()
	r.worker = WorkerID(d.u32())
	r.pending = d.u32()
	r.failures = d.u32()
	r.note = d.u32()
	r.state = TaskState(d.byte())
	r.startLogged = d.bool()
	r.cancelledByUser = d.bool()
	r.losses = d.byte()
}

func (f *frameWriter) end(s *State) {
	f.e.u64(s.entries)
	f.e.u64(s.digest)
	f.e.i64(s.now)
	f.e.u64(f.frames)
	f.frame(frameEnd)
}
