package history

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// schedule sets a schedule whose jobs have a shape.
func (l *clusterLog) schedule(s shape) fsm.ScheduleID {
	l.tb.Helper()
	var id fsm.JobID
	l.leader.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
	header, err := proto.Marshal(&dtaskv1.JobHeader{Name: s.name, Policies: []*dtaskv1.TaskPolicy{{Type: "t", TimeoutMs: 1000}}})
	if err != nil {
		l.tb.Fatal(err)
	}
	ops, sum := upload(id, header, s)
	l.do(append(ops, &fsm.SetSchedule{
		Upload: id, Sum: sum, Recurrence: fsm.Recurrence{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin", Ordered: true},
		ScheduleRules: fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedOne, WithinMS: 1000}, By: "alice", AtMS: 1000,
	})...)
	var x fsm.ScheduleID
	l.leader.Read(func(st *fsm.State, _ uint64) { x = st.ScheduleByName("", s.name).ID })
	return x
}

// fire runs a schedule, and archives the run once it has ended.
func (l *clusterLog) fire(x fsm.ScheduleID, s shape) {
	l.tb.Helper()
	var id fsm.JobID
	l.leader.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
	tick := l.now + 1000
	l.do(&fsm.Fire{Schedule: x, Version: 1, TickMS: tick, Civil: tick/1000 + int64(id), Decision: fsm.TickRuns})
	s.submitted = l.now
	l.end(id, s)
	l.model[id] = s
	l.do(&fsm.Archive{Items: []fsm.JobID{id}})
}

// stored is what a file has of templates.
type stored struct {
	templates, references, parts, jobParts int
	bytes                                  uint64 // that it counts
	format                                 byte
}

func (r *replica) stored() (s stored) {
	r.log.tb.Helper()
	if err := r.view(func(tx *bbolt.Tx) error {
		m, err := loadMeta(tx)
		s.bytes, s.format = m.bytes, m.format()
		for _, of := range []struct {
			bucket []byte
			count  func(k []byte)
		}{
			{bucketTemplates, func(k []byte) {
				if len(k) == sha256.Size {
					s.templates++
				} else {
					s.references++
				}
			}},
			{bucketTemplateParts, func([]byte) { s.parts++ }},
			{bucketParts, func([]byte) { s.jobParts++ }},
		} {
			if err := tx.Bucket(of.bucket).ForEach(func(k, _ []byte) error { of.count(k); return nil }); err != nil {
				return err
			}
		}
		return err
	}); err != nil {
		r.log.tb.Fatal(err)
	}
	return s
}

// runs is a log with n runs of each of two schedules, and an ordinary job with the same tasks.
func runs(t *testing.T, n int) *clusterLog {
	t.Helper()
	l := newLog(t)
	l.do(&fsm.SetLevel{Level: fsm.MaxLevel})
	small := shape{name: "small", tasks: 3, body: 100_000, state: fsm.JobCompleted}
	large := shape{name: "large", tasks: 30, body: 60_000, state: fsm.JobCompleted}
	a, b := l.schedule(small), l.schedule(large)
	for range n {
		l.fire(a, small)
		l.fire(b, large)
	}
	l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: "ordinary", tasks: 3, body: 100_000, state: fsm.JobCompleted})}})
	return l
}

func TestAThousandRunsTakeTheSpaceOfOneTemplate(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.do(&fsm.SetLevel{Level: fsm.MaxLevel})
	s := shape{name: "nightly", tasks: 3, body: 200_000, state: fsm.JobCompleted}
	x := l.schedule(s)
	l.fire(x, s)
	r := l.replica(Config{}).apply().sync()
	first := r.Stats()
	for i := range 999 {
		l.fire(x, s)
		if i%100 == 0 {
			r.apply().sync()
		}
	}
	r.apply().sync()
	if got := r.stored(); got.templates != 1 || got.references != 1000 || got.parts != 5 || got.format != formatTemplates {
		t.Errorf("stored %+v", got)
	}
	now := r.Stats()
	// The summaries of these tests take 2 KB on average.
	if most := first.Bytes + 999*5000; now.Jobs != 1000 || now.Bytes > most {
		t.Errorf("%d jobs take %d bytes, and one %d", now.Jobs, now.Bytes, first.Bytes)
	}
	if most := first.FileBytes + 8<<20; now.FileBytes > most {
		t.Errorf("the file of 1,000 runs has %d bytes, and that of one %d", now.FileBytes, first.FileBytes)
	}
	r.check(Query{Name: "nightly"})
	r.wantSound(1000)
}

// Only runs share tasks, and only if these are large. A file without templates can be read by
// builds that know none.
func TestOtherJobsAreStoredWhole(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for _, s := range []shape{
		{name: "ordinary", tasks: 3, body: 100_000, state: fsm.JobCompleted},
		{name: "small", tasks: 3, body: 80_000, run: true, state: fsm.JobCompleted},
	} {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(s)}})
	}
	r := l.replica(Config{}).apply().sync()
	if got := r.stored(); got.templates != 0 || got.references != 0 || got.parts != 0 || got.format != formatSummaries {
		t.Errorf("stored %+v", got)
	}
	r.check()
}

func TestATemplateLeavesWithItsLastRun(t *testing.T) {
	t.Parallel()
	l := runs(t, 10)
	r := l.replica(Config{WriteDelay: time.Millisecond}).apply().sync()
	ids := slices.Sorted(func(yield func(fsm.JobID) bool) {
		for id := range l.model {
			if !yield(id) {
				return
			}
		}
	})
	expire := func(until fsm.JobID) {
		head, ok, err := r.Find(until)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		l.do(&fsm.ExpireHistory{EndedBefore: head.EndedMS + 1})
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: "late", state: fsm.JobCompleted})}})
		for id := range l.model {
			if id <= until {
				delete(l.model, id)
			}
		}
		r.apply().sync()
	}
	for _, step := range []struct {
		at                    int
		templates, references int
	}{{16, 2, 3}, {18, 1, 1}, {19, 0, 0}} {
		expire(ids[step.at])
		if got := r.stored(); got.templates != step.templates || got.references != step.references {
			t.Errorf("after run %d: stored %+v, want %+v", step.at, got, step)
		}
		r.check()
		r.wantSound(len(l.model))
	}
	expire(ids[20])
	if got := r.stored(); got.parts != 0 || got.jobParts != 0 || got.bytes > 2000 {
		t.Errorf("stored %+v after all runs have expired", got)
	}
}

// Whenever the process ends, no part of a template stays that no job has, and no job lacks its
// template.
func TestATemplateSurvivesACrashWithItsRuns(t *testing.T) {
	t.Parallel()
	l := runs(t, 2)
	path := filepath.Join(t.TempDir(), "history.db")
	var files [][]byte
	r := l.recorded(Config{Path: path, WriteDelay: time.Hour, BatchBytes: 1}, func() {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		files = append(files, b)
	})
	r.apply().sync()
	r.stop()
	interrupted := 0
	for i, b := range files {
		again := l.replica(Config{Path: write(t, b), WriteDelay: time.Hour})
		if got := again.stored(); !slices.Contains([][]int{{0}, {3, 15}, {3 + 15}}[got.templates], got.parts) {
			t.Errorf("file %d: stored %+v", i, got)
		}
		if bytes.Contains(b, []byte("t10")) && again.stored().templates < 2 {
			interrupted++ // a part of the larger template was written
		}
		again.apply().check()
		again.sync().check()
		if got := again.stored(); got.templates != 2 || got.references != 4 || got.parts != 3+15 {
			t.Errorf("file %d: stored %+v", i, got)
		}
		again.wantSound(5)
		again.stop()
	}
	if interrupted == 0 {
		t.Error("no crash between the parts of a template and its run")
	}
}

func TestAReplicaFetchesRunsApartFromTheirTemplate(t *testing.T) {
	t.Parallel()
	l := runs(t, 10)
	whole := l.replica(Config{}).apply().sync()
	for name, cfg := range map[string]Config{
		"one source":       from(whole),
		"the same twice":   {Sources: func(context.Context) ([]Source, bool) { return []Source{incompleteSource{whole}, whole}, true }},
		"parts in advance": {Sources: from(whole).Sources, FetchBytes: 200_000},
	} {
		r := l.replica(cfg).restore(whole.snapshot())
		until(t, name+": the history is complete", func() bool { return !r.Incomplete() })
		r.sync().check(Query{Name: "small"})
		r.wantSound(21)
		if got, want := r.stored(), whole.stored(); got != want {
			t.Errorf("%s: stored %+v, want %+v", name, got, want)
		}
		r.stop()
	}
}

// What is sent is what any build sends: a whole record.
func TestARunIsSentWhole(t *testing.T) {
	t.Parallel()
	l := runs(t, 2)
	r := l.replica(Config{}).apply().sync()
	var record []byte
	seen := 0
	if _, err := r.Serve(t.Context(), Position{}, l.index(), func(c Chunk, _ bool) error {
		if c.Number > 0 {
			record = append(record, c.Data...)
			return nil
		}
		head, _, err := fsm.ReadHead(c.Data)
		if err != nil {
			return err
		}
		st, _ := l.replica(Config{}).restore(r.snapshot()).machine.Fork()
		if id, err := st.AdoptRecord(bytes.NewReader(slices.Concat(c.Data, record))); err != nil || id != head.ID {
			t.Errorf("job %d: %v", head.ID, err)
		}
		seen, record = seen+1, nil
		return nil
	}); err != nil || seen != 5 {
		t.Errorf("%d jobs, %v", seen, err)
	}
}

func TestARestoredBackupHasOneCopyOfATemplate(t *testing.T) {
	t.Parallel()
	l := runs(t, 10)
	path, snapshot := l.restored()
	r := l.replica(Config{Path: path}).restore(snapshot)
	r.wantImported(21, Query{Name: "large"})
	if got := r.stored(); got.templates != 2 || got.references != 20 || got.parts != 3+15 {
		t.Errorf("stored %+v", got)
	}
}

// A file that was written before templates existed has runs that are whole. They are read, sent
// and overwritten by runs that are not.
func TestWholeRunsOfAnEarlierBuildAreReplaced(t *testing.T) {
	t.Parallel()
	l := runs(t, 3)
	source := l.replica(Config{}).apply().sync()
	path := filepath.Join(t.TempDir(), "history.db")
	h, err := Open(Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	rest, size, m := new(parts), 0, h.meta
	if _, err := source.Serve(t.Context(), Position{}, l.index(), func(c Chunk, _ bool) error {
		if c.Number > 0 {
			size += len(c.Data)
			rest.add(c.Job, c.Number, c.Data)
			return nil
		}
		head, _, err := fsm.ReadHead(c.Data)
		if err != nil {
			return err
		}
		e := newEncoded(c.Position, &storedRecord{parts: c.Total, data: c.Data}, &head, size, nil)
		size = 0
		_, err = h.store(&m, rest, []encoded{e}, nil, 0)
		*rest = parts{}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	// The file states that it is complete up to log index 0: all jobs are written again.
	old := l.replica(Config{Path: path})
	before := old.stored()
	old.wantSound(7)
	old.apply().sync().check()
	if got := old.stored(); before.templates != 0 || before.format != formatSummaries || got != source.stored() {
		t.Errorf("stored %+v, then %+v, want %+v", before, got, source.stored())
	}
	old.wantSound(7)
}

// changeTemplates changes a file.
func changeTemplates(t *testing.T, file []byte, change func(tx *bbolt.Tx) error) (path string) {
	t.Helper()
	path = write(t, file)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAScrubFindsDamageOfTemplatesAndRepairsIt(t *testing.T) {
	t.Parallel()
	l := runs(t, 3)
	whole := l.replica(Config{}).apply().sync()
	good, snapshot := fileOf(t, l)
	first := func(tx *bbolt.Tx, bucket []byte) (k, v []byte) {
		k, v = tx.Bucket(bucket).Cursor().First()
		return bytes.Clone(k), bytes.Clone(v)
	}
	for name, change := range map[string]func(tx *bbolt.Tx) error{
		"a flipped bit of a part": func(tx *bbolt.Tx) error {
			k, v := first(tx, bucketTemplateParts)
			v[7777] ^= 1
			return tx.Bucket(bucketTemplateParts).Put(k, v)
		},
		"other contents with a checksum": func(tx *bbolt.Tx) error {
			k, v := first(tx, bucketTemplateParts)
			v[7777] ^= 1
			return tx.Bucket(bucketTemplateParts).Put(k, format.Seal(k, v[:len(v)-format.SumSize]))
		},
		"a missing part": func(tx *bbolt.Tx) error {
			k, _ := first(tx, bucketTemplateParts)
			return tx.Bucket(bucketTemplateParts).Delete(k)
		},
		"a flipped bit of an entry": func(tx *bbolt.Tx) error {
			k, v := first(tx, bucketTemplates)
			v[3] ^= 1
			return tx.Bucket(bucketTemplates).Put(k, v)
		},
		"a missing entry": func(tx *bbolt.Tx) error {
			k, _ := first(tx, bucketTemplates)
			return tx.Bucket(bucketTemplates).Delete(k)
		},
		"a missing reference": func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucketTemplates).Cursor()
			c.First()
			k, _ := c.Next()
			return tx.Bucket(bucketTemplates).Delete(bytes.Clone(k))
		},
		"a reference of an unknown job": func(tx *bbolt.Tx) error {
			k, _ := first(tx, bucketTemplates)
			k = format.AppendJobKey(k, 777)
			return tx.Bucket(bucketTemplates).Put(k, format.Seal(k, nil))
		},
		"a reference of another job": func(tx *bbolt.Tx) error {
			k, _ := first(tx, bucketTemplates)
			last, _ := tx.Bucket(bucketTemplates).Cursor().Last()
			k = append(k, last[sha256.Size:]...)
			return tx.Bucket(bucketTemplates).Put(k, format.Seal(k, nil))
		},
		"a template without a job": func(tx *bbolt.Tx) error {
			k := bytes.Repeat([]byte{9}, sha256.Size)
			sum := sha256.Sum256(nil)
			copy(k, sum[:])
			return tx.Bucket(bucketTemplates).Put(k, new(template).seal(k))
		},
	} {
		path := changeTemplates(t, good, change)
		r := l.replica(scrubbed(from(whole), path)).restore(snapshot).apply()
		until(t, name+" is found and repaired", func() bool { s := r.Stats(); return s.Quarantined > 0 && s.Scrubs > 0 && !r.Incomplete() })
		r.check(Query{Name: "small"})
		if got, want := r.stored(), whole.stored(); got != want {
			t.Errorf("%s: stored %+v, want %+v", name, got, want)
		}
		r.stop()
	}
}

// A single replica loses the runs whose template it can't read, and nothing else.
func TestADamagedTemplateCostsItsRunsOnly(t *testing.T) {
	t.Parallel()
	l := runs(t, 3)
	good, snapshot := fileOf(t, l)
	path := changeTemplates(t, good, func(tx *bbolt.Tx) error {
		k, v := tx.Bucket(bucketTemplateParts).Cursor().First()
		k, v = bytes.Clone(k), bytes.Clone(v)
		v[7777] ^= 1
		return tx.Bucket(bucketTemplateParts).Put(k, v)
	})
	r := l.replica(scrubbed(Config{Sources: func(context.Context) ([]Source, bool) { return nil, true }}, path)).restore(snapshot).apply()
	until(t, "everything was checked and repaired", func() bool { s := r.Stats(); return s.Quarantined > 0 && s.Scrubs > 0 && !r.Incomplete() })
	if got := r.stored(); got.templates != 1 || got.references != 3 {
		t.Errorf("stored %+v", got)
	}
	for id, s := range l.model {
		_, ok, err := r.Find(id)
		if listed := len(r.list(Query{Name: s.name})) > 0; err != nil || ok != listed {
			t.Errorf("job %d: %t, %v", id, ok, err)
		}
		if !ok {
			delete(l.model, id)
		}
	}
	r.check()
	r.wantSound(4)
}

// Any value is a record or an error, and what is read is written again as it was.
func FuzzStoredRecord(f *testing.F) {
	key := format.JobKey(7)
	for _, s := range []storedRecord{
		{index: 1, data: []byte("record")},
		{index: 2, parts: 3, data: []byte("head")},
		{index: 3, parts: 2, data: []byte("head"), template: &templateRef{sum: templateSum{1, 2, 3}, parts: 5, before: 1}},
	} {
		f.Add(s.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readRecord(key, format.Seal(key, bytes.Clone(b)))
		if err != nil {
			return
		}
		if again := s.append(nil); !bytes.Equal(again, b) || s.size() != len(b) {
			t.Errorf("%x is read as %+v and written as %x", b, s, again)
		}
	})
}
