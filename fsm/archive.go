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

// A job that has ended leaves the state at a log position, by Archive: from then
// on it is kept by each replica's history, outside of what the replicas agree on.
// What history stores of it is a record: a head, which is enough to list the
// job, and behind it the frames that a snapshot would have of it.

// Archive takes jobs that have ended out of the state and hands them to history.
type Archive struct {
	IDs []JobID
	// EndedBefore lets history drop the jobs that ended before it, in ms; 0 says
	// nothing. The leader names it while it has reason to believe its clock.
	EndedBefore int64
}

func (*Archive) kind() opKind { return opArchive }

// apply takes jobs out. What is refused stays; the others go.
func (o *Archive) apply(s *State, fx *Effects) Reason {
	fx.endedBefore(o.EndedBefore)
	return each(o.IDs, func(id JobID) Reason { return s.archiveJob(id, fx) })
}

// archiveJob takes out a job. To the state it is as if it was forgotten.
// Rejects: NoSuchJob, WrongState if it has not ended.
func (s *State) archiveJob(id JobID, fx *Effects) Reason {
	j := s.sealedJob(id)
	r := s.forgetJob(id)
	if r == Accepted {
		fx.archived(s, j)
	}
	return r
}

func (o *Archive) encode(e *encoder) {
	e.i64(o.EndedBefore)
	e.u64(uint64(len(o.IDs)))
	last := JobID(0)
	for _, id := range o.IDs {
		e.i64(int64(id) - int64(last)) //nolint:gosec // job numbers stay far below 2^63
		last = id
	}
}

func (o *Archive) decode(d *decoder) {
	o.EndedBefore = d.i64()
	o.IDs = make([]JobID, d.count(1))
	last := int64(0)
	for i := range o.IDs {
		last += d.i64()
		o.IDs[i] = JobID(last) //nolint:gosec // checked when it is looked up
	}
}

// Leaving is what Archive operations did.
type ArchiveBatch struct {
	Jobs        []*ArchivedJob
	EndedBefore int64 // of Archive, the latest; ms; 0 = nothing was said

	workers []*Worker // as they are while jobs leave
}

// archived notes a job that left.
func (fx *Effects) archived(s *State, j *job) {
	if fx == nil || fx.Archived == nil {
		return
	}
	l := fx.Archived
	if l.workers == nil {
		l.workers, s.workersOwn = s.workers, nil // who writes to them next makes a copy
	}
	l.Jobs = append(l.Jobs, &ArchivedJob{job: j, workers: l.workers})
}

func (fx *Effects) endedBefore(ms int64) {
	if fx != nil && fx.Archived != nil {
		fx.Archived.EndedBefore = max(fx.Archived.EndedBefore, ms)
	}
}

// Archived is a job that has left the state. It never changes: safe for
// concurrent use.
type ArchivedJob struct {
	job     *job
	workers []*Worker // as they were when it left
}

// ID is the job's number.
func (a *ArchivedJob) ID() JobID { return a.job.id }

// Job is the job as it ended.
func (a *ArchivedJob) Job() Job { return a.job.view() }

// Cost is about the memory that it holds, in bytes.
func (a *ArchivedJob) Cost() int {
	n := len(a.job.headerBytes) + int(a.job.notes.size) + 512
	for _, c := range a.job.chunks {
		n += c.Size()
	}
	return n + int(a.job.records.n)*48
}

// Head gives what is listed of it.
func (a *ArchivedJob) Head() Head {
	return Head{Job: a.Job(), Aggregated: a.job.aggregated(), Changed: a.job.changed}
}

// Head is what history lists of a job without reading its tasks.
type Head struct {
	Job
	Aggregated uint32 // completed tasks that are part of the job's result
	Changed    uint64 // log index of its last change, or a later one: JobChanged
}

// aggregated counts the tasks that are part of the job's result.
func (j *job) aggregated() uint32 {
	switch {
	case j.state != JobCompleted:
		return 0
	case j.succ == nil:
		return j.counts[Completed]
	}
	n := uint32(0)
	for i := range j.total {
		if j.records.at(i).state == Completed && len(j.dependents(i)) == 0 {
			n++
		}
	}
	return n
}

// frameArchived is the kind of a record's first frame; the frames of the job
// follow. It is in no snapshot.
const frameArchived frameKind = 128

// Write writes the record.
func (a *ArchivedJob) Write(w io.Writer) error {
	_, err := new(RecordWriter).Write(a, w)
	return err
}

// RecordWriter writes records, one after the other, and keeps the memory that it needs
// for that. The zero value is ready.
type RecordWriter struct{ f frameWriter }

// Write writes the record of a job, and gives its head.
func (r *RecordWriter) Write(a *ArchivedJob, w io.Writer) (Head, error) {
	f, h := &r.f, a.Head()
	f.ahead = 16 << 10
	f.begin(w, "")
	a.head(f, &h)
	f.job(a.job)
	if err := f.finish(); err != nil {
		return Head{}, fmt.Errorf("writing the record of job %d: %w", a.job.id, err)
	}
	return h, nil
}

func (a *ArchivedJob) head(f *frameWriter, h *Head) {
	e := &f.e
	e.u64(uint64(h.ID))
	e.u64(uint64(h.Version))
	e.u64(uint64(h.Priority)) //nolint:gosec // an enum
	e.byte(byte(h.State))
	e.byte(byte(h.Outcome))
	e.bool(h.Stopping)
	e.str(h.Error)
	e.u64(uint64(h.Total))
	e.u64(uint64(h.Ordinary))
	e.u64(uint64(h.Tolerated))
	e.u64(uint64(h.Aggregated))
	e.u64(h.Changed)
	e.i64(h.SubmittedMS)
	e.i64(h.StartedMS)
	e.i64(h.EndedMS)
	e.i64(h.RevivedMS)
	e.u64(h.Retries)
	e.u64(h.Recovered)
	used := 0
	for _, n := range h.Counts {
		used += min(int(n), 1)
	}
	e.u64(uint64(used)) //nolint:gosec // a handful
	for state, n := range h.Counts {
		if n > 0 {
			e.byte(byte(state))
			e.u64(uint64(n))
		}
	}
	e.names(a.workerNames(make([]*Worker, 0, 16)))
	f.frame(frameArchived)
}

// workerNames gives the workers that its tasks ran on, as far as they are known, by
// number. It uses the memory of list.
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
	s := State{workers: a.workers}
	for _, id := range ids {
		if w := s.worker(id); w != nil {
			list = append(list, w)
		}
	}
	return list
}

func (e *encoder) names(workers []*Worker) {
	e.u64(uint64(len(workers)))
	for _, w := range workers {
		e.u64(uint64(w.ID))
		e.str(w.Name)
	}
}

func (d *decoder) names() []*Worker {
	n := d.count(2)
	list := make([]*Worker, 0, min(n, 1024))
	for range n {
		list = append(list, &Worker{ID: WorkerID(d.u32()), State: WorkerDown, Name: d.str()})
	}
	return list
}

func (d *decoder) archivedHead() (h Head, workers []*Worker) {
	h.ID, h.Version, h.Priority = JobID(d.u64()), d.u32(), d.priority()
	h.State, h.Outcome, h.Stopping = JobState(d.byte()), JobState(d.byte()), d.bool()
	h.Error = d.str()
	h.Total, h.Ordinary, h.Tolerated, h.Aggregated = d.u32(), d.u32(), d.u32(), d.u32()
	h.Changed = d.u64()
	h.SubmittedMS, h.StartedMS, h.EndedMS, h.RevivedMS = d.i64(), d.i64(), d.i64(), d.i64()
	h.Retries, h.Recovered = d.u64(), d.u64()
	for range d.count(2) {
		state, n := d.byte(), d.u32()
		if state >= byte(numStates) {
			d.fail(fmt.Errorf("tasks in state %d", state))
			break
		}
		h.Counts[state] = n
	}
	if d.err == nil && (h.ID == 0 || !h.State.Terminal()) {
		d.fail(errors.New("no job that has ended"))
	}
	return h, d.names()
}

// ReadHead reads the head of a record, and gives how many bytes it takes with the
// first frame of the job, which has the header. It keeps nothing of b.
func ReadHead(b []byte) (h Head, size int, err error) {
	r := bytes.NewReader(b)
	// The smallest buffer: mostly the reader's own bytes are taken as they are.
	f := frameReader{r: bufio.NewReaderSize(r, 16), s: &State{}}
	d, err := f.expect(frameArchived)
	if err == nil {
		h, _ = d.archivedHead()
		err = d.done()
	}
	if err != nil {
		return Head{}, 0, fmt.Errorf("reading the head of a record: %w", err)
	}
	if d, err = f.expect(frameJob); err != nil {
		return Head{}, 0, fmt.Errorf("reading the head of a record: %w", err)
	}
	id := JobID(d.u64())
	h.Key = string([]byte(d.str()))
	header := d.bytes()
	if d.err != nil || id != h.ID {
		return Head{}, 0, fmt.Errorf("reading the head of a record: job %d: %w", h.ID, errors.Join(d.err, errBadRecord))
	}
	h.Header = new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(header, h.Header); err != nil {
		return Head{}, 0, fmt.Errorf("reading the head of a record: header of job %d: %w", h.ID, err)
	}
	return h, len(b) - r.Len() - f.r.Buffered(), nil
}

var errBadRecord = errors.New("the parts of a record are not of one job")

// Adopt puts an archived job into a fork, so that it is read as the others are.
// It does nothing if the job is there.
func (s *State) Adopt(a *ArchivedJob) {
	if s.jobs.get(a.job.id) == nil {
		s.jobs.put(s.own, a.job)
		s.countLetters(a.job, 1)
		s.addNames(a.workers)
	}
}

// AdoptRecord does so with a record. Whatever is wrong with that it gives an error,
// never part of a job, and the fork must then not be used.
func (s *State) AdoptRecord(r io.Reader) (JobID, error) {
	f := frameReader{r: bufio.NewReaderSize(r, 4<<10), s: s}
	d, err := f.expect(frameArchived)
	if err != nil {
		return 0, fmt.Errorf("reading a record: %w", err)
	}
	h, workers := d.archivedHead()
	if err = d.done(); err == nil {
		if s.jobs.get(h.ID) != nil {
			return h.ID, nil
		}
		d, err = f.expect(frameJob)
	}
	if err == nil {
		err = f.job(d)
	}
	if err == nil {
		err = s.checkRecord(&f, h.ID)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the record of job %d: %w", h.ID, err)
	}
	j := s.jobs.get(h.ID)
	j.changed, j.known = h.Changed, h.Changed
	s.addNames(workers)
	return h.ID, nil
}

// checkRecord looks at a job that was read.
func (s *State) checkRecord(f *frameReader, id JobID) error {
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("goes on after its end")
	}
	j := s.jobs.get(id)
	if j == nil || !j.state.Terminal() {
		return errBadRecord
	}
	return s.checkJob(j)
}

// addNames adds workers that were forgotten since.
func (s *State) addNames(workers []*Worker) {
	for _, w := range workers {
		if at, found := s.workerAt(w.ID); !found {
			s.insertWorker(at, w)
		}
	}
}
