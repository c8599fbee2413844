package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"
)

// failer is a test, a benchmark or a property.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// recordOf writes an archived job.
func recordOf(tb failer, a *ArchivedJob) []byte {
	var b bytes.Buffer
	if _, err := new(RecordWriter).Write(a, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// frames returns the frames that a snapshot has of one job.
func frames(tb failer, s *State, id JobID) string {
	j := s.sealedJob(id)
	if j == nil {
		tb.Fatalf("unknown job %d", id)
	}
	return string(recordOf(tb, &ArchivedJob{job: j}))
}

// checkArchived compares a job before it was archived with its record, and with
// the adopted job.
func checkArchived(t *rapid.T, before, after *State, a *ArchivedJob) {
	fork, other, b := after.Fork(), after.Fork(), new(bytes.Buffer)
	summary := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "summary")
	r := RecordWriter{Summarize: func(*ArchivedJob) []byte { return summary }}
	if _, err := r.Write(a, b); err != nil {
		t.Fatal(err)
	}
	id, err := fork.AdoptRecord(bytes.NewReader(b.Bytes()))
	if err != nil || id != a.ID() {
		t.Fatalf("reading record of job %d: got %d, %v", a.ID(), id, err)
	}
	other.Adopt(a)
	want := frames(t, before, id)
	for name, s := range map[string]*State{"read": fork, "adopted": other} {
		if err := s.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if frames(t, s, id) != want {
			t.Fatalf("%s: job %d differs", name, id)
		}
	}
	h, size, err := ReadHead(b.Bytes())
	if err != nil || size > b.Len() {
		t.Fatal(size, err)
	}
	if got, err := ReadSummary(bytes.NewReader(b.Bytes()[size:])); err != nil || !bytes.Equal(got, summary) {
		t.Fatalf("summary of job %d: got %q, %v, want %q", id, got, err, summary)
	}
	head := a.Head()
	head.updates = nil
	if diff := cmp.Diff(head, h, cmp.AllowUnexported(Job{}), protocmp.Transform()); diff != "" {
		t.Fatalf("head of job %d:\n%s", id, diff)
	}
}

// A job's record is read like the job, whatever happened to it.
func TestARecordReadsLikeItsJob(t *testing.T) {
	t.Parallel()
	seen := 0
	rapid.Check(t, func(rt *rapid.T) {
		choose := drawn(rt)
		g, s := newGenerator(choose), New()
		s.Apply(Entry{Ops: append([]Op{worker(1), worker(2)}, plan(nil).submit(1, "ended", 1)...)}, nil)
		s.Apply(Entry{Ops: []Op{&CancelJob{Job: 1}}}, nil) // few random ones end
		for n := range 20 + choose(80) {
			s.Apply(Entry{NowMS: int64(n * 10), Ops: g.ops(s)}, nil)
		}
		archive := new(Archive)
		for job := range s.Jobs(0) {
			if job.State.Terminal() {
				archive.Items = append(archive.Items, job.ID)
			}
		}
		before, fx := s.Fork(), &Effects{Archived: new(ArchiveBatch)}
		s.Apply(Entry{NowMS: 5000, Ops: []Op{archive}}, fx)
		if len(fx.Archived.Jobs) != len(archive.Items) {
			rt.Fatalf("got %d archived jobs, want %v", len(fx.Archived.Jobs), archive.Items)
		}
		for _, a := range fx.Archived.Jobs {
			seen++
			checkArchived(rt, before, s, a)
		}
	})
	if seen == 0 {
		t.Error("no job was archived")
	}
}

func TestARecordNamesWorkersThatWereForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1), worker(2))
	w.submit(plan(nil))
	w.do(complete(w.assign(0, 2)))
	fx := &Effects{Archived: new(ArchiveBatch)}
	w.s.Apply(Entry{Ops: []Op{&Archive{Items: []JobID{1}}}}, fx)
	w.do(&MarkWorkerDown{ID: 2}, &ForgetWorkers{IDs: []WorkerID{2}})
	fork := w.s.Fork()
	if _, err := fork.AdoptRecord(bytes.NewReader(recordOf(t, fx.Archived.Jobs[0]))); err != nil {
		t.Fatal(err)
	}
	if got := fork.Worker(2); got == nil || got.Name != "w2" {
		t.Errorf("got worker 2 %+v", got)
	}
	if w.s.Worker(2) != nil {
		t.Error("the worker was added to the state itself")
	}
}

// taker is an Archiver that records its calls.
type taker struct {
	m     *Machine
	story []string
}

func (k *taker) WaitForSpace() { k.m.Index(); k.story = append(k.story, "wait for space") } // no lock is held
func (k *taker) Take(index uint64, left *ArchiveBatch) {
	k.story = append(k.story, fmt.Sprintf("take %d: %d jobs, before %d", index, len(left.Jobs), left.EndedBefore))
}

func (k *taker) Restored(index uint64) {
	k.story = append(k.story, fmt.Sprintf("restored %d", index))
}

func TestTheMachinePassesArchivedJobsToHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	w.do(complete(w.assign(0, 1)), &Archive{Items: []JobID{1}}, &ExpireHistory{EndedBefore: 5})
	m := NewMachine()
	k := &taker{m: m}
	m.ArchiveTo(k)
	for i, data := range w.log {
		m.Apply(uint64(i+1), data)
	}
	var b bytes.Buffer
	if err := m.Snapshot().Persist(&b); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	last := len(w.log)
	want := []string{"wait for space", fmt.Sprintf("take %d: 1 jobs, before 5", last), fmt.Sprintf("restored %d", last)}
	if diff := cmp.Diff(want, k.story); diff != "" {
		t.Error(diff)
	}
}

// fixed returns the record with correct checksums.
func fixed(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at+9 <= len(data); {
		end := at + 5 + int(binary.LittleEndian.Uint32(data[at+1:]))
		if end+4 > len(data) || end < at {
			break
		}
		binary.LittleEndian.PutUint32(data[end:], crc32.Checksum(data[at:end], castagnoli))
		at = end + 4
	}
	return data
}

// Any input is the record of a valid job or an error.
func FuzzReadRecord(f *testing.F) {
	s := populated(f)
	for job := range s.Jobs(0) {
		if job.State.Terminal() {
			a := &ArchivedJob{job: s.sealedJob(job.ID), workers: s.workers.list}
			f.Add(recordOf(f, a))
			f.Add(summarized(f, a))
		}
	}
	f.Add([]byte{})
	empty := New()
	empty.nextJob = 1 << 40
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, fixed(data)} {
			fork := empty.Fork()
			h, size, headErr := ReadHead(b)
			id, err := fork.AdoptRecord(bytes.NewReader(b))
			if err != nil {
				continue
			}
			if headErr != nil || size > len(b) || h.ID != id {
				t.Fatalf("job %d: got head %d of %d bytes, %v", id, h.ID, size, headErr)
			}
			if _, err := ReadSummary(bytes.NewReader(b[size:])); err != nil {
				t.Fatalf("summary of job %d: %v", id, err)
			}
			j := fork.sealedJob(id)
			if err := fork.checkJob(j); err != nil {
				t.Fatal(err)
			}
			for i := range j.total {
				fork.Task(ref(id, i))
				fork.Result(ref(id, i))
				fork.History(ref(id, i))
				fork.Name(ref(id, i))
				fork.TaskType(ref(id, i))
				fork.Body(ref(id, i))
				fork.Dependencies(ref(id, i))
			}
			again := frames(t, fork, id)
			other := empty.Fork()
			if _, err := other.AdoptRecord(bytes.NewReader([]byte(again))); err != nil {
				t.Fatalf("reading written record: %v", err)
			}
		}
	})
}

// ended returns a completed job of n tasks with results of size bytes.
func ended(tb testing.TB, n, size int) *ArchivedJob {
	tb.Helper()
	s, p := New(), plan()
	for i := range n {
		p.tasks = append(p.tasks, taskPlan{name: fmt.Sprintf("task-%d", i), body: make([]byte, 32)})
	}
	s.Apply(Entry{NowMS: 1_700_000_000_000, Ops: append([]Op{worker(1)}, p.submit(1, "key", 1000)...)}, nil)
	assign, done, result := new(Assign), new(Complete), make([]byte, size)
	for i := range n {
		h := hold(1, uint32(i), 1, 1)
		assign.Items = append(assign.Items, AssignItem(h))
		done.Items = append(done.Items, CompleteItem{HeldAttempt: h, DurationMS: 5, Result: result})
	}
	fx := &Effects{Archived: new(ArchiveBatch)}
	if r := s.Apply(Entry{NowMS: 1_700_000_000_100, Ops: []Op{assign, done, &Archive{Items: []JobID{1}}}}, fx); r != Accepted {
		tb.Fatal(r)
	}
	return fx.Archived.Jobs[0]
}

// Measures the time per task of writing a record, and its length.
func BenchmarkWriteRecord(b *testing.B) {
	for _, n := range []int{1, 10, 1000, 100_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			a := ended(b, n, 8)
			var buf bytes.Buffer
			b.ReportAllocs()
			for b.Loop() {
				buf.Reset()
				if _, err := new(RecordWriter).Write(a, &buf); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/task")
			b.ReportMetric(float64(buf.Len())/float64(n), "bytes/task")
		})
	}
}

// Measures the time of reading a record, whole and for a listing.
func BenchmarkReadRecord(b *testing.B) {
	rec := recordOf(b, ended(b, 10, 8))
	s := New()
	s.nextJob = 10
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Fork().AdoptRecord(bytes.NewReader(rec)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("head", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := ReadHead(rec); err != nil {
				b.Fatal(err)
			}
		}
	})
}
