package offline

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
)

// addToSet adds a state and a segment of the history after a log index to a directory, as
// dtaskctl backup save --to does, and returns the segment.
func addToSet(t *testing.T, dir string, m *fsm.Machine, h *history.History, after uint64) backup.Segment {
	t.Helper()
	snapshot := m.Snapshot()
	s, segment := snapshot.State(), backup.NewSegment(after, snapshot.Index())
	manifest := backup.Manifest{ClusterID: s.ClusterID(), ServerID: "n1", Index: snapshot.Index(), Term: 3, Epoch: s.Epoch(), Level: uint32(s.Level())}
	write := func(name string, m backup.Manifest, content func(w *backup.Writer) error) {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		w, err := backup.NewWriter(file, m)
		if err == nil {
			err = content(w)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	part := manifest
	part.History, part.HistoryAfter = true, after
	write(segment.Name, part, func(w *backup.Writer) error {
		from := history.Position{Index: after}
		if after > 0 {
			from.Job = math.MaxUint64
		}
		_, err := h.Serve(t.Context(), from, snapshot.Index(), func(c history.Chunk, _ bool) error {
			return w.Job(backup.Chunk{Index: c.Index, Job: uint64(c.Job), Number: c.Number, Total: c.Total, Data: c.Data})
		})
		return err
	})
	manifest.HistoryTo = segment.To
	write(backup.NewStateFile(snapshot.Index()).Name, manifest, func(w *backup.Writer) error { return snapshot.Persist(w) })
	return segment
}

// backupSet is a directory with two backups, between which a second job has left the state.
func backupSet(t *testing.T) (dir string, first, second backup.Segment) {
	t.Helper()
	m, h := stateToSave(t)
	dir = t.TempDir()
	first = addToSet(t, dir, m, h, 0)
	for _, op := range []fsm.Op{&fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: held(2)}}}, &fsm.Archive{Items: []fsm.JobID{2}}} {
		if a, ok := m.Apply(m.Index()+1, fsm.Encode(nil, fsm.Entry{NowMS: 10, Ops: []fsm.Op{op}})).(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
			t.Fatalf("%T: %+v", op, a)
		}
	}
	return dir, first, addToSet(t, dir, m, h, first.To)
}

func TestTheNewestBackupOfADirectoryIsRestoredWithTheWholeHistory(t *testing.T) {
	t.Parallel()
	dir, _, second := backupSet(t)
	report, err := InspectBackup(dir, "")
	if err != nil || report.Index != second.To || !report.History || report.HistoryJobs != 2 || len(report.HistoryFiles) != 2 || report.Jobs["running"] != 1 {
		t.Fatalf("got %+v, %v", report, err)
	}
	cfg := restoring(t, dir)
	done, err := Restore(t.Context(), cfg, time.Now())
	if err != nil || done.Jobs != 1 || done.History != 2 {
		t.Fatalf("got %+v, %v", done, err)
	}
	restored, err := history.Open(history.Config{Path: filepath.Join(cfg.DataDir, historyName), Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []fsm.JobID{1, 2} {
		if _, ok, err := restored.Find(id); !ok || err != nil {
			t.Errorf("job %d is in the history: %t, %v", id, ok, err)
		}
	}
	if err := errors.Join(restored.Close()); err != nil {
		t.Error(err)
	}
}

func TestADirectoryOfBackupsThatLacksHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(dir string, first, second backup.Segment) error
		message string
	}{
		"a missing file": {func(dir string, first, _ backup.Segment) error { return os.Remove(filepath.Join(dir, first.Name)) }, "history files are missing"},
		"half a file": {func(dir string, _, second backup.Segment) error {
			return os.Truncate(filepath.Join(dir, second.Name), 100)
		}, "backup is incomplete"},
		"a file under another name": {func(dir string, first, second backup.Segment) error {
			return os.Rename(filepath.Join(dir, first.Name), filepath.Join(dir, second.Name))
		}, "history files are missing"},
		"the wrong content": {func(dir string, first, second backup.Segment) error {
			text, err := os.ReadFile(filepath.Join(dir, first.Name))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, second.Name), text, 0o600))
		}, "backup is damaged"},
		"nothing": {func(dir string, _, _ backup.Segment) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		}, "has no backup"},
	} {
		dir, first, second := backupSet(t)
		if err := test.change(dir, first, second); err != nil {
			t.Fatal(err)
		}
		cfg := restoring(t, dir)
		if _, err := Restore(t.Context(), cfg, time.Now()); err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: got %v, want %q", name, err, test.message)
		}
		if left, err := os.ReadDir(filepath.Dir(cfg.DataDir)); err == nil && len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

// A part of the history must not look like all of it.
func TestASegmentAloneIsNoBackup(t *testing.T) {
	t.Parallel()
	dir, first, second := backupSet(t)
	for _, segment := range []backup.Segment{first, second} {
		if _, err := InspectBackup(filepath.Join(dir, segment.Name), ""); err == nil {
			t.Errorf("%s was read as a backup", segment.Name)
		}
	}
	report, err := InspectBackup(filepath.Join(dir, backup.NewStateFile(first.To).Name), "")
	if err != nil || report.History || report.Index != first.To {
		t.Errorf("a state alone: got %+v, %v", report, err)
	}
}
