package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// ReadSnapshot builds a state from the output of WriteSnapshot. For damaged
// input it returns an error, never part of a state, and it allocates at most
// a small multiple of the input's length. The error for a level that this build
// does not support is a *LevelError.
func ReadSnapshot(r io.Reader) (*State, error) { return readSnapshot(r, MaxLevel, false) }

// readSnapshot is ReadSnapshot for a build that supports levels up to highest. A state that is
// read to be written again keeps its keys encoded.
func readSnapshot(r io.Reader, highest Level, rewritten bool) (*State, error) {
	f := frameReader{r: bufio.NewReaderSize(r, readBuffer), s: New(), rewritten: rewritten}
	s, err := f.state(highest)
	if err != nil {
		return nil, fmt.Errorf("reading snapshot: %w", err)
	}
	return s, nil
}

// readBuffer is for short frames. Long ones are read directly into the memory
// that keeps them.
const readBuffer = 16 << 10

type frameReader struct {
	r       *bufio.Reader
	s       *State
	scratch []byte // memory for frames of keys, which keep none of it unless rewritten
	frames  uint64

	rewritten bool // see encodedKeys
}

// next reads a frame and verifies its checksum.
func (f *frameReader) next() (frameKind, *decoder, error) {
	var head [5]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("frame %d: %w", f.frames, unexpected(err))
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame %d: invalid length %d", f.frames, n)
	}
	into, reused := []byte(nil), frameKind(head[0]) == frameKeys && !f.rewritten
	if reused {
		into = f.scratch
	}
	b, err := f.read(into, int(n)+4)
	if reused {
		f.scratch = b
	}
	if err != nil {
		return 0, nil, fmt.Errorf("frame %d: %w", f.frames, unexpected(err))
	}
	body, tail := b[:n:n], b[n:]
	sum := crc32.Update(crc32.Update(0, castagnoli, head[:]), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(tail) {
		return 0, nil, fmt.Errorf("frame %d: checksum mismatch", f.frames)
	}
	f.frames++
	return frameKind(head[0]), &decoder{b: body}, nil
}

// read reads n bytes, into the memory of b if that is enough to begin with. Memory grows
// with the bytes that arrive, not with the length that is claimed.
func (f *frameReader) read(b []byte, n int) ([]byte, error) {
	const step = 256 << 10
	if first := min(n, max(step, cap(b))); first <= cap(b) {
		b = b[:first]
	} else {
		b = make([]byte, first)
	}
	if _, err := io.ReadFull(f.r, b); err != nil {
		return nil, err
	}
	for len(b) < n {
		at := len(b)
		b = slices.Grow(b, min(n-at, at))[:at+min(n-at, at)]
		if _, err := io.ReadFull(f.r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// expect reads a frame of one kind.
func (f *frameReader) expect(want frameKind) (*decoder, error) {
	kind, d, err := f.next()
	if err == nil && kind != want {
		err = fmt.Errorf("frame %d has kind %d, want %d", f.frames-1, kind, want)
	}
	return d, err
}

func (f *frameReader) state(highest Level) (*State, error) {
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(f.r, magic); err != nil || string(magic) != snapshotMagic {
		return nil, &UnknownError{What: "snapshot format"}
	}
	if err := f.level(highest); err != nil {
		return nil, err
	}
	first := f.frames + 1
	for {
		kind, d, err := f.next()
		if err != nil {
			return nil, err
		}
		if (kind == frameCluster) != (f.frames == first) {
			return nil, fmt.Errorf("frame %d has kind %d: the cluster frame must come first and only once", f.frames-1, kind)
		}
		switch kind {
		case frameCluster:
			f.cluster(d)
		case frameWorker:
			f.worker(d)
		case frameKeys:
			f.keys(d)
		case frameNotifications:
			f.notifications(d)
		case frameResults:
			f.results(d)
		case frameTrust:
			f.trust(d)
		case frameIdentities:
			f.identities(d)
		case frameJoinTokens:
			f.joinTokens(d)
		case frameAuditHeads:
			f.auditHeads(d)
		case frameBackups:
			f.backups(d)
		case frameClusterName:
			f.clusterName(d)
		case frameTotals:
			f.totals(d)
		case frameQueues:
			f.queues(d)
		case frameNamedLimits:
			f.namedLimits(d)
		case frameSchedules:
			f.schedules(d)
		case frameSchedule:
			err = f.schedule(d)
		case frameJob:
			err = f.job(d)
		case frameCheckpoint:
			err = f.checkpoint(d)
		case frameEnd:
			return f.end(d)
		case frameChunk, frameSharedChunks, frameRecords, frameNotes, frameUpdates, frameArchived, frameSummary, frameLevel:
			err = fmt.Errorf("frame %d is out of place", f.frames-1)
		default:
			err = &UnknownError{What: fmt.Sprintf("frame kind %d", kind)}
		}
		if err == nil {
			err = d.done()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (f *frameReader) end(d *decoder) (*State, error) {
	s, frames := f.s, uint64(0)
	s.endFields(&coder{d: d}, &frames)
	if d.err == nil && frames != f.frames-1 {
		return nil, fmt.Errorf("%d frames, want %d", f.frames-1, frames)
	}
	if err := d.done(); err != nil {
		return nil, err
	}
	switch _, err := f.r.ReadByte(); {
	case err == nil:
		return nil, errors.New("data after the end")
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	s.workers.held = s.workers.countHeld(&s.jobs)
	s.restoreNeeds()
	s.restoreKeys()
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (f *frameReader) cluster(d *decoder) {
	s := f.s
	s.clusterFields(&coder{d: d})
	if d.err == nil && (s.nextJob == 0 || s.nextJob > 1<<62 || s.workers.next == 0 || s.notifications.next == 0) {
		d.fail(fmt.Errorf("next job %d, worker %d or notification %d is out of range", s.nextJob, s.workers.next, s.notifications.next))
	}
}

// worker reads a worker. Order and numbers are checked at the end.
func (f *frameReader) worker(d *decoder) {
	w := new(Worker)
	w.fields(&coder{d: d})
	f.s.workers.list = append(f.s.workers.list, w)
	f.s.workers.names.set(f.s.own, w.Name, w.ID)
}

// minKeySize is the length of the shortest key in a snapshot: a byte for each field, and the
// digest.
const minKeySize = 5 + 16

// keys reads the keys of a frame.
func (f *frameReader) keys(d *decoder) {
	if f.rewritten {
		f.encodedKeys(d)
	} else {
		f.decodeKeys(d)
	}
}

// decodeKeys reads the keys of a frame, which are mostly all or none of those of a shard.
func (f *frameReader) decodeKeys(d *decoder) {
	c, n := coder{d: d}, d.count()
	most := len(d.b) / minKeySize
	for i := range n {
		var name string
		var k key
		if k.fields(&c, &name); d.err != nil {
			return
		}
		hash := hashOf(name)
		if i == 0 {
			f.s.keys.shard(f.s.own, hash).reserve(min(n, most))
		}
		f.s.keys.setHashed(f.s.own, hash, name, k)
	}
}

func (f *frameReader) job(d *decoder) error {
	s, j, parts := f.s, &job{own: f.s.own}, jobParts{}
	j.fields(&coder{d: d}, &parts)
	if err := d.done(); err != nil {
		return err
	}
	if j.id == 0 || j.id >= s.nextJob || s.jobs.get(j.id) != nil || j.state == 0 || j.state >= numJobStates {
		return fmt.Errorf("job %d is duplicate, out of range, or in an invalid state", j.id)
	}
	h, err := s.headers.decode(j.headerBytes)
	if err != nil {
		return fmt.Errorf("job %d: %w", j.id, err)
	}
	j.headerBytes, j.header = h.encoded, h.decoded
	if err := j.checkNeeds(); err != nil {
		return fmt.Errorf("job %d: %w", j.id, err)
	}
	if err := f.jobFrames(j, parts); err != nil {
		return fmt.Errorf("job %d: %w", j.id, err)
	}
	if err := f.updates(j, parts.variants, parts.updated); err != nil {
		return fmt.Errorf("job %d: %w", j.id, err)
	}
	if j.state != JobUploading && j.succ == nil {
		j.succ = j.makeSuccessors()
	}
	s.jobs.put(s.own, j)
	s.deadLetters.addJob(s.own, j, 1)
	return nil
}

func (f *frameReader) jobFrames(j *job, parts jobParts) error {
	read := f.chunks
	if parts.chunks == 0 && j.state != JobUploading {
		read = f.sharedChunks
	}
	tasks, err := read(j, parts.chunks)
	if err != nil {
		return err
	}
	if j.state != JobUploading && tasks != j.total {
		return errors.New("missing tasks")
	}
	var last []byte // contents of the previous frame
	for range parts.pages {
		d, err := f.expect(frameRecords)
		if err != nil {
			return err
		}
		contents := d.b
		if len(j.records.pages) > 0 && bytes.Equal(contents, last) {
			err = j.repeatPage(tasks)
		} else {
			err = readRecords(j, d, tasks)
		}
		if err != nil {
			return err
		}
		last = contents
	}
	if j.records.n != tasks {
		return errors.New("missing records")
	}
	j.countEnds()
	for j.notes.size < parts.notes {
		d, err := f.expect(frameNotes)
		if err != nil {
			return err
		}
		if err := j.notes.restore(d.b); err != nil {
			return err
		}
	}
	if j.notes.size != parts.notes {
		return errors.New("too many notes")
	}
	return nil
}

// chunks reads the chunks of a job, and returns the number of their tasks.
func (f *frameReader) chunks(j *job, n uint32) (tasks uint32, err error) {
	for range n {
		d, err := f.expect(frameChunk)
		if err != nil {
			return 0, err
		}
		var c *Chunk
		(&coder{d: d}).chunk(&c, false)
		if err := d.done(); err != nil {
			return 0, err
		}
		if c.First != tasks || c.Len() == 0 || uint64(tasks)+uint64(c.Len()) > uint64(j.total) { //nolint:gosec // lengths
			return 0, errors.New("chunks out of order")
		}
		if !j.include(c) {
			return 0, errors.New("tasks without policy or out of order")
		}
		tasks += uint32(c.Len()) //nolint:gosec // ≤ total
		j.chunks = append(j.chunks, c)
		j.sum = c.Sum(j.sum)
	}
	return tasks, nil
}

// repeatPage adds the previous page again: tasks without any event are equal.
// The page has no owner, so that the first write copies it.
func (j *job) repeatPage(tasks uint32) error {
	p := j.records.pages[len(j.records.pages)-1]
	if len(p.recs) < pageSize || j.records.n+pageSize > tasks {
		return errors.New("pages of records out of order")
	}
	for i := range p.recs {
		j.count(&p.recs[i], j.records.n+uint32(i)) //nolint:gosec // ≤ total
	}
	j.records.pages = append(j.records.pages, p)
	j.records.n += pageSize
	return nil
}

// count counts the record of the i-th task.
func (j *job) count(r *record, i uint32) {
	j.counts[r.state]++
	if j.isCleanup(i) {
		j.cleanupCounts[r.state]++
	}
	if r.runs() {
		j.running++
	}
}

// readRecords adds one page of records.
func readRecords(j *job, d *decoder, tasks uint32) error {
	p := &page{recs: make([]record, 0, min(pageSize, j.total-j.records.n))}
	for len(d.b) > 0 && d.err == nil {
		if len(p.recs) == cap(p.recs) {
			return errors.New("page of records too long")
		}
		var r record
		d.record(&r)
		if r.state == 0 || r.state >= numStates {
			return errors.New("record in an invalid state")
		}
		p.recs = append(p.recs, r)
		j.count(&r, j.records.n+uint32(len(p.recs))-1) //nolint:gosec // ≤ total
	}
	if d.err != nil {
		return d.err
	}
	if len(p.recs) == 0 {
		return errors.New("empty page of records")
	}
	j.records.pages = append(j.records.pages, p)
	j.records.n += uint32(len(p.recs)) //nolint:gosec // ≤ pageSize
	if j.records.n > tasks || (len(p.recs) < pageSize && j.records.n != tasks) {
		return errors.New("pages of records out of order")
	}
	return nil
}
