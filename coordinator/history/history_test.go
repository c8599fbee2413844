package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

var endings = []fsm.JobState{fsm.JobCompleted, fsm.JobFailed, fsm.JobCancelled}

// State and history together show what a model without forgetting shows, in any order
// of archiving, writes, crashes and snapshots.
func TestNothingIsLostOrShownTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		l := newLog(t)
		path := filepath.Join(t.TempDir(), "history.db")
		cfg := Config{Path: path, WriteDelay: time.Hour, BatchBytes: 1 + choose(5000)}
		r, snapshot, kept := l.replica(cfg), []byte(nil), []fsm.JobID(nil)
		for range 5 + choose(25) {
			switch l.now += int64(choose(40) - 10); choose(8) {
			case 0, 1, 2:
				s := shape{name: fmt.Sprintf("n%d", choose(3)), owner: fmt.Sprintf("o%d", choose(2)), namespace: []string{"", "etl", "ml"}[choose(3)], tasks: 1 + choose(4), body: choose(100), state: endings[choose(3)]}
				if choose(2) == 0 {
					s.labels = map[string]string{"k": fmt.Sprintf("v%d", choose(2)), "x": "y"}
				}
				if choose(15) == 0 {
					s.tasks, s.body, s.run = 500, 1000, choose(2) == 0 // long enough for parts
				}
				kept = append(kept, l.submit(s))
			case 3, 4:
				if len(kept) > 0 {
					at := choose(len(kept))
					l.do(&fsm.Archive{Items: []fsm.JobID{kept[at]}})
					kept = append(kept[:at], kept[at+1:]...)
				}
			case 5:
				r.apply().sync()
			case 6:
				r.apply().sync()
				snapshot = r.snapshot()
			case 7: // crash: what was applied since the snapshot is replayed
				r.stop()
				r = l.replica(cfg)
				if snapshot != nil {
					r.restore(snapshot)
				}
			}
			r.apply()
			if r.Incomplete() {
				rt.Fatal("incomplete, though nothing was lost")
			}
			r.check(
				Query{Name: fmt.Sprintf("n%d", choose(4)), States: []fsm.JobState{endings[choose(3)], fsm.JobRunning}},
				Query{Owner: "o1", Labels: map[string]string{"k": "v1", "x": "y"}},
				Query{States: []fsm.JobState{fsm.JobFailed}, Below: fsm.JobID(1 + choose(10))},
				Query{States: []fsm.JobState{fsm.JobRunning}},
				Query{Namespaces: []string{"etl"}},
				Query{Namespaces: []string{"etl", "ml"}, Owner: "o1"},
				Query{Namespaces: []string{"default", "ml"}, Name: "n1"},
				Query{Namespaces: []string{}},
				Query{Since: l.now - int64(choose(200))},
				Query{Since: l.now - int64(choose(200)), Before: l.now - int64(choose(100)), Name: "n1"},
			)
		}
		r.stop()
	})
}

// filled is a log with archived jobs of all kinds.
func filled(t *testing.T, jobs int) *clusterLog {
	t.Helper()
	l := newLog(t)
	for i := range jobs {
		s := shape{name: fmt.Sprintf("n%d", i%3), tasks: 1 + i%3, body: 20, state: endings[i%3], labels: map[string]string{"i": fmt.Sprint(i % 5)}}
		if i%10 == 5 {
			s.tasks, s.body = 300, 500
		}
		if i%20 == 5 || i%20 == 12 {
			s.tasks, s.body, s.run = 5, 60_000, true // its template is that of others
		}
		id := l.submit(s)
		l.do(&fsm.Archive{Items: []fsm.JobID{id}})
	}
	return l
}

// A power failure leaves any subset of the pages of the current transaction. In each
// case the file opens as it was before or after, and the log has the rest.
func TestAFileSurvivesATornWrite(t *testing.T) {
	t.Parallel()
	l := filled(t, 20)
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
	page := pageSize
	for i := 1; i < len(files); i++ {
		old, now := files[i-1], files[i]
		for _, part := range []int{0, 1, 2, 3} {
			// All pages, none, every second: but not the roots, which are written last.
			mixed := append([]byte(nil), now...)
			for at := 0; at < len(mixed); at += page {
				keep := at < 2*page && part != 3 || part == 1 || part == 2 && at/page%2 == 0
				if end := at + page; keep && end <= len(old) {
					copy(mixed[at:end], old[at:end])
				}
			}
			cut := filepath.Join(t.TempDir(), "history.db")
			if err := os.WriteFile(cut, mixed, 0o600); err != nil {
				t.Fatal(err)
			}
			again := l.replica(Config{Path: cut, WriteDelay: time.Hour})
			if n := again.Stats().Quarantined; n > 0 {
				t.Fatalf("file %d, part %d is damaged", i, part)
			}
			again.apply().check()
			again.sync().check()
			again.stop()
		}
	}
}

func TestASnapshotWaitsForTheFile(t *testing.T) {
	t.Parallel()
	l := filled(t, 30)
	path := filepath.Join(t.TempDir(), "history.db")
	r := l.replica(Config{Path: path, WriteDelay: time.Hour}).apply().sync()
	snapshot := r.snapshot()
	r.stop()
	again := l.replica(Config{Path: path, WriteDelay: time.Hour}).restore(snapshot)
	if again.Incomplete() {
		t.Error("incomplete, though the file has all that left before the snapshot")
	}
	again.check(Query{Name: "n1"})
	limited, cancel := context.WithTimeout(t.Context(), time.Minute) // far below the delay of a write
	defer cancel()
	if err := again.Sync(limited, l.index()); err != nil {
		t.Errorf("entries that are in the file: %v", err)
	}
	again.stop()
	if err := again.Sync(t.Context(), l.index()+1); err == nil {
		t.Error("a stopped history reports entries that it never wrote")
	}
}

func TestAReplicaWithoutItsHistoryFetchesIt(t *testing.T) {
	t.Parallel()
	l := filled(t, 40)
	whole := l.replica(Config{}).apply().sync()
	snapshot := whole.snapshot()
	for i := range 5 {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: fmt.Sprint("late", i), state: fsm.JobCompleted})}})
	}
	whole.apply()
	r := l.replica(from(whole)).restore(snapshot).apply()
	until(t, "the history is complete", func() bool { return !r.Incomplete() })
	r.check(Query{Name: "n2"}, Query{Labels: map[string]string{"i": "3"}})
	if n := r.Stats().Fetched; n != 40 {
		t.Errorf("fetched %d jobs, want 40", n)
	}
	if got, want := r.sync().Stats(), whole.sync().Stats(); got.Jobs != want.Jobs || got.Bytes != want.Bytes {
		t.Errorf("counts %d jobs, %d bytes, want %d, %d", got.Jobs, got.Bytes, want.Jobs, want.Bytes)
	}
}

func TestAReplicaReportsThatItIsIncomplete(t *testing.T) {
	t.Parallel()
	l := filled(t, 10)
	whole := l.replica(Config{}).apply().sync()
	gate := make(chan struct{})
	cfg := Config{Sources: func(ctx context.Context) ([]Source, bool) {
		select {
		case <-gate:
			return []Source{whole}, true
		case <-ctx.Done():
			return nil, false
		}
	}}
	cfg.Path = filepath.Join(t.TempDir(), "history.db")
	r := l.replica(cfg).restore(whole.snapshot())
	if _, ok, err := r.Find(3); ok || err != nil || !r.Incomplete() {
		t.Errorf("job 3: %v, %v; incomplete %v", ok, err, r.Incomplete())
	}
	r.sync().stop() // it is still incomplete after a crash
	r = l.replica(cfg).restore(whole.snapshot())
	if !r.Incomplete() {
		t.Error("complete after a restart")
	}
	close(gate)
	until(t, "the history is complete", func() bool { return !r.Incomplete() })
	r.check()
}

// incompleteSource has all jobs of a replica and does not report that it is complete.
type incompleteSource struct{ *replica }

func (s incompleteSource) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (bool, error) {
	_, err := s.Serve(ctx, after, to, func(c Chunk, _ bool) error { return take(c, false) })
	return false, err
}

func TestJobsFetchedFromTwoReplicasAreOverwritten(t *testing.T) {
	t.Parallel()
	l := filled(t, 300)
	whole := l.replica(Config{}).apply().sync()
	cfg := Config{Sources: func(context.Context) ([]Source, bool) { return []Source{incompleteSource{whole}, whole}, true }}
	cfg.Path = filepath.Join(t.TempDir(), "history.db")
	r := l.replica(cfg).restore(whole.snapshot())
	until(t, "the history is complete", func() bool { return !r.Incomplete() })
	if n := r.Stats().Fetched; n != 600 {
		t.Errorf("fetched %d jobs, want each of 300 from both", n)
	}
	r.sync().check(Query{Name: "n2"}, Query{Labels: map[string]string{"i": "3"}})
}

func TestAGapIsClosedAfterAllMembersAnswered(t *testing.T) {
	t.Parallel()
	l := filled(t, 10)
	a := l.replica(Config{}).apply().sync()
	snapshot := a.snapshot()
	a.stop()
	for i := range 10 {
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: fmt.Sprint("late", i), state: fsm.JobCompleted})}})
	}
	// No replica has the first ten any longer: after all were asked, the loss is
	// logged and the gap is closed.
	b := l.replica(Config{}).restore(snapshot).apply()
	c := l.replica(from(b)).restore(snapshot).apply()
	until(t, "the gap is closed", func() bool { return !c.Incomplete() })
	for id := range l.model {
		if id <= 10 {
			delete(l.model, id)
		}
	}
	c.check()
	if !b.Incomplete() {
		t.Error("a replica without sources is complete")
	}
}

func TestDamageIsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	whole := l.replica(Config{}).apply().sync()
	path := filepath.Join(t.TempDir(), "history.db")
	r := l.replica(Config{Path: path}).apply().sync()
	snapshot := r.snapshot()
	r.stop()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	repaired := 0
	for at := 777; at < len(good); at += 40_009 {
		bad := append([]byte(nil), good...)
		for i := range 16 {
			bad[min(at+i*251, len(bad)-1)] ^= 0x41
		}
		cfg := from(whole)
		cfg.Path = filepath.Join(t.TempDir(), "history.db")
		if err := os.WriteFile(cfg.Path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		r := l.replica(cfg).restore(snapshot).apply()
		for id := range l.model { // a read returns the right job or an error
			st, _ := r.machine.Fork()
			if _, err := r.Adopt(st, id); err != nil && !errors.Is(err, errClosed) && !isDamaged(err) {
				t.Errorf("byte %d: job %d: %v", at, id, err)
			}
		}
		_, err := r.List(t.Context(), Query{}, func(fsm.Head) bool { return true })
		if err != nil && !errors.Is(err, errClosed) && !isDamaged(err) {
			t.Errorf("byte %d: listing: %v", at, err)
		}
		until(t, "the history is complete", func() bool { return !r.Incomplete() })
		if r.Stats().Quarantined > 0 {
			repaired++
			r.check(Query{Name: "n0"})
		}
		r.stop()
	}
	if repaired == 0 {
		t.Error("no damage was found")
	}
}

func TestOldJobsExpire(t *testing.T) {
	t.Parallel()
	t.Run("by number", func(t *testing.T) {
		t.Parallel()
		l := filled(t, 50)
		r := l.replica(Config{MaxJobs: 20}).apply().sync()
		until(t, "20 jobs remain", func() bool { return r.Stats().Jobs == 20 })
		for id := range l.model {
			if id <= 30 {
				delete(l.model, id)
			}
		}
		r.check(Query{Name: "n1"}, Query{States: []fsm.JobState{fsm.JobFailed}})
	})
	t.Run("by age", func(t *testing.T) {
		t.Parallel()
		l := filled(t, 50)
		head, _, _ := l.replica(Config{}).apply().Find(31)
		l.do(&fsm.ExpireHistory{EndedBefore: head.EndedMS})
		r := l.replica(Config{WriteDelay: time.Millisecond}).apply()
		until(t, "20 jobs remain", func() bool { return r.Stats().Jobs == 20 && r.Stats().Pending == 0 })
		for id := range l.model {
			if id <= 30 {
				delete(l.model, id)
			}
		}
		r.check(Query{Name: "n1"})
	})
}

// The file stays within its limit however many jobs pass through it.
func TestTheFileStaysWithinItsByteLimit(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	l := newLog(t)
	r := l.replica(Config{MaxBytes: most, BatchBytes: 256 << 10})
	for i := range 150 {
		id := l.submit(shape{name: fmt.Sprint(i), tasks: 200, body: 500, state: fsm.JobCompleted, labels: map[string]string{"i": fmt.Sprint(i)}})
		l.do(&fsm.Archive{Items: []fsm.JobID{id}})
		r.apply()
		if i%5 == 0 {
			r.sync()
		}
	}
	r.sync()
	until(t, "the bytes are within the limit", func() bool { return r.Stats().Bytes <= most })
	if size := r.Stats().FileBytes; size > 16<<20 { // the file grows by steps of 16 MiB at most
		t.Errorf("file of %d bytes with a limit of %d", size, most)
	}
	if r.Stats().Expired < 100 {
		t.Errorf("only %d jobs expired", r.Stats().Expired)
	}
}

func TestBackpressure(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	h, err := Open(Config{Path: filepath.Join(t.TempDir(), "history.db"), BusyBytes: 1, MaxPendingBytes: 2000, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := fsm.NewMachine()
	m.ArchiveTo(h)
	id := l.submit(shape{tasks: 20, body: 200, state: fsm.JobCompleted})
	l.do(&fsm.Archive{Items: []fsm.JobID{id}})
	next := l.submit(shape{state: fsm.JobCompleted})
	l.do(&fsm.Archive{Items: []fsm.JobID{next}})
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		for i, data := range l.entries {
			m.Apply(uint64(i+1), data)
		}
	}()
	until(t, "the first job has left", h.Busy)
	select {
	case <-applied:
		t.Error("the second job left without free space")
	default:
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	<-applied
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Each transaction is synced, mostly on the disk of the log: one per job would delay
// it.
func TestLongRecordsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	for range 20 {
		id := l.submit(shape{tasks: 300, body: 100, state: fsm.JobCompleted})
		l.do(&fsm.Archive{Items: []fsm.JobID{id}})
	}
	transactions := 0
	r := l.recorded(Config{WriteDelay: time.Hour}, func() { transactions++ })
	r.apply().sync()
	r.check(Query{States: []fsm.JobState{fsm.JobCompleted}})
	r.stop()
	if transactions > 2 {
		t.Errorf("20 records of some 40 KB took %d transactions", transactions)
	}
}
