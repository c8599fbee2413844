package history

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

// scrubbed returns a Config that checks the file immediately and continuously.
func scrubbed(cfg Config, path string) Config {
	cfg.Path, cfg.ScrubDelay, cfg.ScrubInterval, cfg.ScrubRate = path, time.Millisecond, 20*time.Millisecond, 1<<30
	return cfg
}

// fileOf returns the file of a replica that has applied a log, and its snapshot.
func fileOf(t *testing.T, l *clusterLog) (file, snapshot []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	r := l.replica(Config{Path: path}).apply().sync()
	snapshot = r.snapshot()
	r.stop()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, snapshot
}

func write(t *testing.T, b []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Wherever a bit flips, reads are right after one scrub, even if no read found the
// damage.
func TestAFlippedBitIsFoundWithoutARead(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: "long", tasks: 300, body: 1000, state: fsm.JobCompleted})}})
	whole := l.replica(Config{}).apply().sync()
	good, snapshot := fileOf(t, l)
	repaired := 0
	for at := 3 * pageSize; at < len(good); at += 23_456 + at%13 {
		bad := slices.Clone(good)
		bad[at] ^= 1 << (at % 8)
		r := l.replica(scrubbed(from(whole), write(t, bad))).restore(snapshot).apply()
		until(t, "everything was checked and repaired", func() bool { return r.Stats().Scrubs > 0 && !r.Incomplete() })
		r.check(Query{Since: 1, Before: l.now}, Query{Name: "n0"}, Query{Labels: map[string]string{"i": "3"}}, Query{States: []fsm.JobState{fsm.JobFailed}})
		if r.Stats().Quarantined > 0 {
			repaired++
		}
		r.stop()
	}
	if repaired == 0 {
		t.Error("no bit that mattered was flipped")
	}
}

// A scrub finds no damage in a good file while jobs are written and expire.
func TestAScrubOfAGoodFileFindsNoDamage(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	cfg := scrubbed(Config{MaxJobs: 40, WriteDelay: time.Millisecond}, filepath.Join(t.TempDir(), "history.db"))
	cfg.ScrubInterval = 2 * time.Millisecond
	r := l.replica(cfg)
	for i := range 200 {
		s := shape{name: fmt.Sprintf("n%d", i%3), tasks: 1 + i%4*50, body: 400, state: fsm.JobCompleted, labels: map[string]string{"i": fmt.Sprint(i)}}
		l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(s)}})
		r.apply()
	}
	r.sync()
	seen := r.Stats().Scrubs
	until(t, "it was checked two more times", func() bool { return r.Stats().Scrubs >= seen+2 })
	if s := r.Stats(); s.Quarantined > 0 || s.Scrubbed == 0 {
		t.Errorf("stats are %+v", s)
	}
}

// A single replica has no source: it loses only the jobs that can't be read.
func TestASingleReplicaKeepsReadableJobs(t *testing.T) {
	t.Parallel()
	l := filled(t, 60)
	good, snapshot := fileOf(t, l)
	lost := fsm.JobID(0)
	for _, id := range slices.Sorted(maps.Keys(l.model)) {
		if l.model[id].state == fsm.JobCompleted {
			lost = id
		}
	}
	at := bytes.LastIndex(good, fmt.Appendf(nil, "result %d/0", lost))
	if at < 0 {
		t.Fatal("the result of the job is not in the file")
	}
	for i := range good { // including older copies in free pages
		if bytes.HasPrefix(good[i:], fmt.Appendf(nil, "result %d/0", lost)) {
			good[i] ^= 4
		}
	}
	cfg := Config{Sources: func(context.Context) ([]Source, bool) { return nil, true }}
	r := l.replica(scrubbed(cfg, write(t, good))).restore(snapshot).apply()
	until(t, "everything was checked and repaired", func() bool { s := r.Stats(); return s.Quarantined > 0 && s.Scrubs > 0 && !r.Incomplete() })
	if _, ok, err := r.Find(lost); ok || err != nil {
		t.Errorf("job %d, which cannot be read: %v, %v", lost, ok, err)
	}
	delete(l.model, lost)
	r.check(Query{Name: "n0"}, Query{Labels: map[string]string{"i": "3"}})
	if s := r.Stats(); s.Fetched != uint64(len(l.model)) || s.Jobs != s.Fetched {
		t.Errorf("stats are %+v, want %d jobs", s, len(l.model))
	}
}
