package fsm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Archive removes a finished job from the state at a log position. From then
// on each replica keeps it in its history, outside of the replicated state.
// History stores a record: a head, which is enough to list the job, the frames
// that a snapshot would have of it and, after the first of these, a summary if
// the writer adds one.

// ArchiveBatch has the jobs that an entry archived.
type ArchiveBatch struct {
	Jobs        []*ArchivedJob
	EndedBefore int64 // of ExpireHistory, the latest; ms; 0 = none

	workers []*Worker // as they are when the jobs leave
}

// archived adds a job to the batch.
func (fx *Effects) archived(s *State, j *job) {
	if fx == nil || fx.Archived == nil {
		return
	}
	l := fx.Archived
	if l.workers == nil {
		l.workers, s.workers.own = s.workers.list, nil // the next write copies the list
	}
	l.Jobs = append(l.Jobs, &ArchivedJob{job: j, workers: l.workers})
}

func (fx *Effects) endedBefore(ms int64) {
	if fx != nil && fx.Archived != nil {
		fx.Archived.EndedBefore = max(fx.Archived.EndedBefore, ms)
	}
}

// ArchivedJob is a job that left the state. It never changes: safe for
// concurrent use.
type ArchivedJob struct {
	job     *job
	workers []*Worker // as they were when it left
}

// ID is the job's number.
func (a *ArchivedJob) ID() JobID { return a.job.id }

// Job is the job as it ended.
func (a *ArchivedJob) Job() Job { return a.job.view() }

// Cost is the approximate size of the job in memory, in bytes.
func (a *ArchivedJob) Cost() int {
	n := len(a.job.headerBytes) + int(a.job.notes.size) + 512
	for _, c := range a.job.chunks {
		n += c.Size()
	}
	return n + int(a.job.records.n)*48
}

// Head returns the head of the job's record.
func (a *ArchivedJob) Head() Head {
	return Head{Job: a.Job(), Aggregated: a.job.aggregated(), Changed: a.job.changed}
}

// Head is what history needs to list a job without reading its tasks.
type Head struct {
	Job
	Aggregated uint32 // completed tasks that are part of the job's result
	Changed    uint64 // log index of its last change, or a later one: JobChanged
}

// aggregated returns the number of tasks that are part of the job's result.
func (j *job) aggregated() uint32 {
	switch {
	case j.state != JobCompleted:
		return 0
	case j.succ == nil:
		return j.counts[Completed]
	}
	n, arrays := uint32(0), len(j.arrays) > 0
	for i := range j.total {
		unit := i
		if arrays {
			unit = j.unit(i)
		}
		if j.succ.from[unit] == j.succ.from[unit+1] && j.records.at(i).state == Completed {
			n++
		}
	}
	return n
}

// frameArchived is the kind of a record's first frame. The frames of the job
// follow. Snapshots have none of this kind. A new format of records takes a
// new kind.
const frameArchived frameKind = 129

// RecordWriter writes records and reuses its memory. The zero value is ready
// to use.
type RecordWriter struct {
	// Summarize returns the summary of a job: see ReadSummary. If it is nil or
	// returns nothing, the record has none.
	Summarize func(*ArchivedJob) []byte

	f frameWriter
}

// Write writes the record of a job and returns its head.
func (r *RecordWriter) Write(a *ArchivedJob, w io.Writer) (Head, error) {
	return r.write(a, w, nil)
}

// write writes a record; without its template, in the place of which it calls
// template, if that is not nil.
func (r *RecordWriter) write(a *ArchivedJob, w io.Writer, template func() error) (Head, error) {
	f, h := &r.f, a.Head()
	f.flushBytes = 16 << 10
	f.begin(w, "")
	a.head(f, &h)
	f.jobHead(a.job, a.job.chunks)
	if r.Summarize != nil {
		f.summary(r.Summarize(a))
	}
	if template == nil {
		f.chunks(a.job.chunks)
	} else {
		f.apart(template)
	}
	f.jobRest(a.job)
	if err := f.finish(); err != nil {
		return Head{}, fmt.Errorf("writing record of job %d: %w", a.job.id, err)
	}
	return h, nil
}

func (a *ArchivedJob) head(f *frameWriter, h *Head) {
	workers := a.workerNames(make([]*Worker, 0, 16))
	h.fields(&f.c, &workers)
	f.frame(frameArchived)
}

func (h *Head) fields(c *coder, workers *[]*Worker) {
	number(c, &h.ID)
	c.digest(&h.Digest)
	number(c, &h.Version)
	c.priority(&h.Priority)
	number(c, &h.State)
	number(c, &h.Outcome)
	c.bool(&h.Stopping)
	c.str(&h.Error)
	number(c, &h.Total)
	number(c, &h.Ordinary)
	number(c, &h.Tolerated)
	number(c, &h.Aggregated)
	number(c, &h.Changed)
	c.i64(&h.SubmittedMS)
	c.i64(&h.StartedMS)
	c.i64(&h.EndedMS)
	c.i64(&h.RevivedMS)
	number(c, &h.Retries)
	number(c, &h.Requeues)
	for state := range h.Counts {
		number(c, &h.Counts[state])
	}
	list(c, workers, func(w **Worker) {
		if c.d != nil {
			*w = &Worker{State: WorkerDown}
		}
		number(c, &(*w).ID)
		c.str(&(*w).Name)
	})
	c.needEnds(&h.NeedEnds, false)
	if !h.State.Terminal() || h.ID == 0 {
		c.fail(errors.New("not a finished job"))
	}
}

// workerNames returns the workers that the job's tasks ran on, by number,
// unless they are forgotten. It uses the memory of list.
func (a *ArchivedJob) workerNames(list []*Worker) []*Worker {
	ids := make([]WorkerID, 0, 16) // ascending
	last := WorkerID(0)
	for _, p := range a.job.records.pages {
		for i := range p.recs {
			id := p.recs[i].worker
			if id == last || id == 0 {
				continue
			}
			last = id
			if at, found := slices.BinarySearch(ids, id); !found {
				ids = slices.Insert(ids, at, id)
			}
		}
	}
	known := workers{list: a.workers}
	for _, id := range ids {
		if w := known.get(id); w != nil {
			list = append(list, w)
		}
	}
	return list
}

// ReadHead decodes the head of a record. size is its length with the first
// frame of the job, which has the header. The head does not share the memory
// of b.
func ReadHead(b []byte) (h Head, size int, err error) {
	r := bytes.NewReader(b)
	// The smallest buffer: bufio then passes on most reads to r.
	f := frameReader{r: bufio.NewReaderSize(r, 16), s: &State{}}
	d, err := f.expect(frameArchived)
	if err == nil {
		var workers []*Worker
		h.fields(&coder{d: d}, &workers)
		err = d.done()
	}
	if err != nil {
		return Head{}, 0, fmt.Errorf("reading head of record: %w", err)
	}
	if d, err = f.expect(frameJob); err != nil {
		return Head{}, 0, fmt.Errorf("reading head of record: %w", err)
	}
	id := JobID(d.u64())
	h.Key = string([]byte(d.str()))
	header := d.bytes()
	if d.err != nil || id != h.ID {
		return Head{}, 0, fmt.Errorf("reading head of record of job %d: %w", h.ID, errors.Join(d.err, errBadRecord))
	}
	h.Header = new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(header, h.Header); err != nil {
		return Head{}, 0, fmt.Errorf("reading head of record: header of job %d: %w", h.ID, err)
	}
	return h, len(b) - r.Len() - f.r.Buffered(), nil
}

var errBadRecord = errors.New("frames of different jobs")

// Adopt adds an archived job to a fork, so that the accessors read it like
// other jobs. It does nothing if the job exists.
func (s *State) Adopt(a *ArchivedJob) {
	if s.jobs.get(a.job.id) == nil {
		s.jobs.put(s.own, a.job)
		s.deadLetters.addJob(s.own, a.job, 1)
		s.addNames(a.workers)
	}
}

// AdoptRecord does the same with an encoded record. If it returns an error,
// the fork must not be used.
func (s *State) AdoptRecord(r io.Reader) (JobID, error) {
	f := frameReader{r: bufio.NewReaderSize(r, 4<<10), s: s}
	d, err := f.expect(frameArchived)
	if err != nil {
		return 0, fmt.Errorf("reading record: %w", err)
	}
	var h Head
	var workers []*Worker
	h.fields(&coder{d: d}, &workers)
	if err = d.done(); err == nil {
		if s.jobs.get(h.ID) != nil {
			return h.ID, nil
		}
		d, err = f.expect(frameJob)
	}
	if err == nil {
		_, err = f.summary() // what it says follows from the rest
	}
	if err == nil {
		err = f.job(d)
	}
	if err == nil {
		err = s.checkRecord(&f, h.ID)
	}
	if err != nil {
		return 0, fmt.Errorf("reading record of job %d: %w", h.ID, err)
	}
	j := s.jobs.get(h.ID)
	j.changed, j.changesKnown = h.Changed, h.Changed
	s.addNames(workers)
	return h.ID, nil
}

// checkRecord checks a decoded job.
func (s *State) checkRecord(f *frameReader, id JobID) error {
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("data after the end")
	}
	j := s.jobs.get(id)
	if j == nil || !j.state.Terminal() {
		return errBadRecord
	}
	return s.checkJob(j)
}

// addNames adds workers that have been forgotten since.
func (s *State) addNames(workers []*Worker) {
	for _, w := range workers {
		if at, found := s.workers.at(w.ID); !found {
			s.workers.insert(s.own, at, w)
		}
	}
}
