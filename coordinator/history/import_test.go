package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// tooSlow is a rate at which nothing is imported during a test.
const tooSlow = 1

// restored makes the history of a cluster whose log begins with a snapshot, and whose jobs that
// left before it are to be imported. It returns the path, and the snapshot.
func (l *clusterLog) restored() (path string, snapshot []byte) {
	l.tb.Helper()
	source := l.replica(Config{}).apply().sync()
	defer source.stop()
	path = filepath.Join(l.tb.TempDir(), "history.db")
	w, err := CreateImport(path, l.index())
	if err != nil {
		l.tb.Fatal(err)
	}
	if _, err := source.Serve(l.tb.Context(), Position{}, l.index(), func(c Chunk, _ bool) error { return w.Add(c) }); err != nil {
		l.tb.Fatal(err)
	}
	if jobs, dropped, err := w.Close(); err != nil || jobs != source.Stats().Jobs || dropped > 0 {
		l.tb.Fatalf("%d jobs to import, %d left out: %v", jobs, dropped, err)
	}
	if err := Create(path, l.index(), l.index()); err != nil {
		l.tb.Fatal(err)
	}
	return path, source.snapshot()
}

// wantImported waits until all jobs are imported, and checks that each is there once, also in
// the index and the counts, and that the import file is gone.
func (r *replica) wantImported(jobs int, queries ...Query) {
	r.log.tb.Helper()
	until(r.log.tb, "all jobs are imported", func() bool { return r.Stats().ImportJobs == 0 })
	r.check(queries...)
	if s := r.Stats(); s.Incomplete || s.Jobs != uint64(jobs) || s.ToImport != 0 {
		r.log.tb.Errorf("got %+v, want %d jobs", s, jobs)
	}
	r.wantSound(jobs)
	if _, err := os.Stat(r.cfg.Path + ImportSuffix); !errors.Is(err, fs.ErrNotExist) {
		r.log.tb.Errorf("the import file is still there: %v", err)
	}
}

// wantSound checks the whole file.
func (r *replica) wantSound(jobs int) {
	r.log.tb.Helper()
	if n, err := r.scrubAll(r.log.tb.Context(), rate.NewLimiter(rate.Inf, 1)); err != nil || n != jobs {
		r.log.tb.Errorf("checked %d jobs, want %d: %v", n, jobs, err)
	}
}

// queries are those that the tests list jobs with.
var queries = []Query{{Name: "n2"}, {Labels: map[string]string{"i": "3"}}, {States: []fsm.JobState{fsm.JobFailed}}, {Below: 17}}

func TestJobsAreReadBeforeTheyAreImported(t *testing.T) {
	t.Parallel()
	l := filled(t, 100)
	path, snapshot := l.restored()
	r := l.replica(Config{Path: path, ImportRate: tooSlow}).restore(snapshot)
	r.check(queries...)
	if s := r.Stats(); s.Jobs != 0 || s.ImportJobs != 100 || s.ToImport != 100 || s.Incomplete {
		t.Errorf("got %+v", s)
	}
	// New jobs are listed with them.
	for i := range 5 {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: fmt.Sprint("n", i), state: fsm.JobCompleted})}})
	}
	r.apply().check(queries...)
	r.sync().check(queries...)
	if _, ok, err := r.Find(4711); ok || err != nil {
		t.Errorf("an unknown job: %t, %v", ok, err)
	}
}

// The import must not take time from the start of a cluster.
func TestTheImportBeginsWhenItMay(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	path, snapshot := l.restored()
	begin := make(chan struct{})
	r := l.replica(Config{Path: path, ImportAfter: begin}).restore(snapshot)
	for i := range 5 { // the writer works already
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: fmt.Sprint("n", i), state: fsm.JobCompleted})}})
	}
	r.apply().sync().check(queries...)
	if s := r.Stats(); s.Jobs != 5 || s.ToImport != 60 {
		t.Errorf("got %+v", s)
	}
	close(begin)
	r.wantImported(65, queries...)
}

func TestJobsAreReadWhileTheyAreImported(t *testing.T) {
	t.Parallel()
	l := filled(t, 100)
	path, snapshot := l.restored()
	committed, checked := make(chan struct{}), make(chan struct{})
	r := l.recorded(Config{Path: path, FetchBytes: 400_000}, func() {
		committed <- struct{}{}
		<-checked
	})
	left := r.Stats().ToImport
	for r.Stats().ImportJobs > 0 {
		<-committed
		if r.applied == 0 {
			r.restore(snapshot)
		}
		r.check(queries...)
		now := r.Stats().ToImport
		if now > left {
			t.Fatalf("%d jobs are left, %d were before", now, left)
		}
		left = now
		checked <- struct{}{}
		until(t, "the batch is counted", func() bool {
			s := r.Stats()
			// The last batch is counted before the import ends: no other one follows.
			return s.ImportJobs == 0 || s.ToImport > 0 && s.ToImport < left || left == 100
		})
	}
	go func() { // of the writer, if it stores anything else
		for range committed {
			checked <- struct{}{}
		}
	}()
	r.wantImported(100, queries...)
	r.stop()
	close(committed)
}

// A crash after each transaction: the next start continues, also if the last job was imported
// and the file is still there.
func TestACrashDuringTheImportLosesNothing(t *testing.T) {
	t.Parallel()
	l := filled(t, 40)
	path, snapshot := l.restored()
	var crashes []string
	r := l.recorded(Config{Path: path, FetchBytes: 40_000}, func() {
		dir := t.TempDir()
		for _, suffix := range []string{"", ImportSuffix} {
			b, err := os.ReadFile(path + suffix)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "history.db"+suffix), b, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		crashes = append(crashes, filepath.Join(dir, "history.db"))
	}).restore(snapshot)
	r.wantImported(40, queries...)
	r.stop()
	if len(crashes) < 5 {
		t.Fatalf("only %d transactions", len(crashes))
	}
	for _, at := range crashes {
		again := l.replica(Config{Path: at, ImportRate: tooSlow}).restore(snapshot)
		again.check(queries...)
		again.stop()
		again = l.replica(Config{Path: at}).restore(snapshot)
		again.check(queries...)
		again.wantImported(40, queries...)
		again.stop()
	}
}

// What is to be imported is sent to other replicas, in order, before and while it is imported.
func TestAReplicaFetchesJobsThatAreToBeImported(t *testing.T) {
	t.Parallel()
	l := filled(t, 100)
	for _, cfg := range []Config{{ImportRate: tooSlow}, {FetchBytes: 20_000}} {
		path, snapshot := l.restored()
		cfg.Path = path
		first := l.replica(cfg).restore(snapshot)
		joined := l.replica(from(first)).restore(snapshot)
		until(t, "the history is complete", func() bool { return !joined.Incomplete() })
		joined.check(queries...)
		joined.wantSound(100)
		if n := joined.Stats().Fetched; n != 100 {
			t.Errorf("fetched %d jobs, want 100", n)
		}
		last := Position{}
		complete, err := first.Serve(t.Context(), Position{Index: 30}, l.index(), func(c Chunk, complete bool) error {
			if !complete || c.Number == 0 && !last.before(c.Position) || c.Index < 30 {
				t.Errorf("%+v after %+v, complete %t", c.Position, last, complete)
			}
			if c.Number == 0 {
				last = c.Position
			}
			return nil
		})
		if err != nil || !complete || last.Job != 100 {
			t.Errorf("%t, %v; the last job is %d", complete, err, last.Job)
		}
		first.stop()
		joined.stop()
	}
}

// damage changes a byte of the data of a job that is to be imported.
func damage(t *testing.T, path string, job fsm.JobID) {
	t.Helper()
	f, err := openImport(path + ImportSuffix)
	if err != nil {
		t.Fatal(err)
	}
	r, ok, err := f.find(job)
	if err != nil || !ok {
		t.Fatalf("job %d: %t, %v", job, ok, err)
	}
	changeByte(t, path+ImportSuffix, r.parts+importHead+3)
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}

func changeByte(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedJobsToImportAreFetchedFromReplicas(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	whole := l.replica(Config{}).apply().sync()
	for name, change := range map[string]func(path string){
		"a short job":     func(path string) { damage(t, path, 21) },
		"a part of a job": func(path string) { damage(t, path, 26) },
		"the directory":   func(path string) { changeByte(t, path+ImportSuffix, -30) },
		"the end":         func(path string) { changeByte(t, path+ImportSuffix, -1) },
	} {
		path, snapshot := l.restored()
		change(path)
		cfg := from(whole)
		cfg.Path = path
		r := l.replica(cfg).restore(snapshot)
		until(t, name+": the history is complete", func() bool { s := r.Stats(); return !s.Incomplete && s.ImportJobs == 0 })
		r.check(queries...)
		r.wantSound(60)
		if _, err := os.Stat(path + ImportSuffix + quarantineSuffix); err != nil {
			t.Errorf("%s: the damaged file was not kept: %v", name, err)
		}
		r.stop()
	}
}

// If no other replica has the damaged jobs, the others are imported.
func TestOneDamagedJobDoesNotLoseTheOthers(t *testing.T) {
	t.Parallel()
	for _, job := range []fsm.JobID{1, 26, 60} { // the second one has parts
		l := filled(t, 60)
		path, snapshot := l.restored()
		damage(t, path, job)
		cfg := Config{Path: path, FetchBytes: 1000, Sources: func(context.Context) ([]Source, bool) { return nil, true }}
		r := l.replica(cfg).restore(snapshot)
		until(t, "the gap is closed", func() bool { s := r.Stats(); return !s.Incomplete && s.ImportJobs == 0 })
		delete(l.model, job)
		r.check(queries...)
		r.wantSound(59)
		if _, ok, err := r.Find(job); ok || err != nil {
			t.Errorf("job %d: %t, %v", job, ok, err)
		}
		r.stop()
	}
}

// While a job that can't be read may be at another replica, the history is incomplete.
func TestADamagedJobToImportMakesTheHistoryIncomplete(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	path, snapshot := l.restored()
	damage(t, path, 21)
	r := l.replica(Config{Path: path, ImportRate: tooSlow}).restore(snapshot)
	if _, ok, err := r.Find(21); ok || err == nil || !r.Incomplete() {
		t.Errorf("got %t, %v; incomplete %t", ok, err, r.Incomplete())
	}
	listed := r.list(Query{})
	if slices.Contains(listed, 21) || len(listed) != 59 {
		t.Errorf("listed %v", listed)
	}
	complete, err := r.Serve(t.Context(), Position{}, l.index(), func(Chunk, bool) error { return nil })
	if complete || err != nil {
		t.Errorf("served: %t, %v", complete, err)
	}
}

// Jobs that are imported and expire meanwhile are not read from the import file any more.
func TestJobsExpireWhileTheyAreImported(t *testing.T) {
	t.Parallel()
	l := filled(t, 100)
	path, snapshot := l.restored()
	var r *replica
	ready, checked := make(chan struct{}), 0
	r = l.recorded(Config{Path: path, MaxJobs: 10, FetchBytes: 20_000}, func() {
		<-ready
		if _, left := r.ImportProgress(); left == 0 || left > 50 {
			return
		}
		checked++
		if _, ok, err := r.Find(1); ok || err != nil {
			t.Errorf("job 1: %t, %v", ok, err)
		}
	}).restore(snapshot)
	close(ready)
	until(t, "all jobs are imported", func() bool { s := r.Stats(); return s.ImportJobs == 0 && s.Jobs <= 10 })
	for id := range fsm.JobID(90) {
		delete(l.model, id+1)
	}
	r.check(queries...)
	r.wantSound(10)
	r.stop()
	if checked == 0 {
		t.Error("no transaction between the expiry of a job and the end of the import")
	}
}

// The import starts again if the history file is damaged meanwhile.
func TestADamagedHistoryIsImportedAgain(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	path, snapshot := l.restored()
	r := l.replica(Config{Path: path, ImportRate: tooSlow}).restore(snapshot)
	for i := range 5 {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: fmt.Sprint("n", i), state: fsm.JobCompleted})}})
	}
	r.apply().sync()
	r.checkDamage(format.Damaged("for this test"))
	until(t, "the file is replaced", func() bool { return r.Stats().Quarantined == 1 })
	if !r.Incomplete() {
		t.Error("complete without the jobs after the import")
	}
	r.stop()
	whole := l.replica(Config{}).apply().sync()
	cfg := from(whole)
	cfg.Path = path
	r = l.replica(cfg).restore(snapshot)
	r.applied = len(l.entries)
	until(t, "the history is complete", func() bool { s := r.Stats(); return !s.Incomplete && s.ImportJobs == 0 })
	for id := range l.model {
		if _, ok, err := r.Find(id); !ok || err != nil {
			t.Errorf("job %d: %t, %v", id, ok, err)
		}
	}
	if s := r.Stats(); s.Jobs != 65 {
		t.Errorf("got %+v", s)
	}
}

// A backup may lack parts of a job that expired while it was saved, or have them twice.
func TestAJobWithoutAllItsPartsIsNotImported(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.db")
	w, err := CreateImport(path, 9)
	if err != nil {
		t.Fatal(err)
	}
	chunk := func(job fsm.JobID, number, total uint32) Chunk {
		return Chunk{Position: Position{Index: 5, Job: job}, Number: number, Total: total, Data: fmt.Appendf(nil, "%d/%d", job, number)}
	}
	for _, c := range []Chunk{
		chunk(1, 1, 0), chunk(1, 2, 0), // without a head
		chunk(2, 1, 0), chunk(2, 0, 2), // without the second part
		chunk(3, 1, 0), chunk(3, 1, 0), chunk(3, 2, 0), chunk(3, 0, 2), // the first part twice
		chunk(4, 0, 1), // without any part
		chunk(5, 0, 0), chunk(6, 1, 0),
	} {
		if err := w.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []Chunk{chunk(5, 0, 0), {Position: Position{Index: 10, Job: 7}}, {Position: Position{Index: 9, Job: 7}, Data: make([]byte, maxImportChunk+1)}} {
		if err := w.Add(c); err == nil {
			t.Errorf("%+v was added", c.Position)
		}
	}
	if jobs, dropped, err := w.Close(); jobs != 2 || dropped != 2 || err != nil {
		t.Fatalf("%d jobs, %d left out, %v", jobs, dropped, err)
	}
	f, err := openImport(path + ImportSuffix)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if _, err := (importSource{f, nil}).Fetch(t.Context(), Position{}, 9, func(c Chunk, _ bool) error {
		got = append(got, string(c.Data))
		return nil
	}); err != nil || fmt.Sprint(got) != "[3/1 3/2 3/0 5/0]" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// Without jobs there is nothing to import.
func TestAnEmptyImportLeavesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.db")
	w, err := CreateImport(path, 9)
	if err != nil {
		t.Fatal(err)
	}
	if jobs, _, err := w.Close(); jobs != 0 || err != nil {
		t.Errorf("%d jobs, %v", jobs, err)
	}
	if err := Create(path, 9, 0); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, 9, 0); err == nil {
		t.Error("it was created twice")
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A full disk must not leave a file that looks complete.
func TestAFailedWriteOfJobsToImportIsAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.db")
	w, err := CreateImport(path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		if err = w.Add(Chunk{Position: Position{Index: i + 1, Job: 1}, Data: make([]byte, 1<<20)}); err != nil {
			break
		}
	}
	if _, _, closed := w.Close(); err == nil || closed == nil {
		t.Errorf("adding: %v, closing: %v", err, closed)
	}
}

// The history file is replaced between two transactions of the import: what the first ones have
// stored is imported again.
func TestAnImportStartsAgainInANewHistoryFile(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	path, snapshot := l.restored()
	var r *replica
	ready, commits := make(chan struct{}), 0
	r = l.recorded(Config{Path: path, FetchBytes: 10_000}, func() {
		<-ready
		if commits++; commits == 4 {
			r.checkDamage(format.Damaged("for this test"))
		}
	}).restore(snapshot)
	close(ready)
	r.wantImported(60, queries...)
	if n := r.Stats().Quarantined; n != 1 {
		t.Errorf("the file was replaced %d times", n)
	}
}
