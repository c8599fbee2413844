package offline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// stateToSave is a state with three jobs of one task: the first one is archived, the second one
// runs, and the third one runs at most once. It keeps its history in a directory of the test.
func stateToSave(tb testing.TB) (*fsm.Machine, *history.History) {
	tb.Helper()
	h, err := history.Open(history.Config{Path: filepath.Join(tb.TempDir(), "history.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
	m := fsm.NewMachine()
	m.ArchiveTo(h)
	ops := []fsm.Op{
		&fsm.SetLevel{Level: fsm.MaxLevel}, &fsm.SetClusterID{ID: oldCluster}, &fsm.Replica{ServerID: "n1", Instance: "a"}, &fsm.StartTerm{Term: 3, ServerID: "n1"},
		&fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: "i", Slots: 4},
		&fsm.CreateIdentity{
			Name: "root", Grant: fsm.Grant{Role: fsm.RoleAdmin}, CreatedBy: "x", CreatedMS: 1,
			Credential: fsm.Credential{Kind: fsm.TokenCredential, Hash: [32]byte{1}},
		},
	}
	for id := range fsm.JobID(3) {
		ops = append(ops, submitted(tb, id+1)...)
		ops = append(ops, &fsm.Assign{Items: []fsm.AssignItem{fsm.AssignItem(held(id + 1))}})
	}
	ops = append(ops, &fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: held(1)}}}, &fsm.Archive{Items: []fsm.JobID{1}})
	for i, op := range ops {
		if a, ok := m.Apply(uint64(i)+1, fsm.Encode(nil, fsm.Entry{NowMS: 9, Ops: []fsm.Op{op}})).(fsm.Applied); !ok || a.Rejected != fsm.Accepted {
			tb.Fatalf("%T: %+v", op, a)
		}
	}
	return m, h
}

func held(id fsm.JobID) fsm.HeldAttempt {
	return fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id}, Attempt: 1}, Worker: 1}
}

// submitted are the operations that store a job; the third one is at most once.
func submitted(tb testing.TB, id fsm.JobID) []fsm.Op {
	tb.Helper()
	execution := dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE
	if id == 3 {
		execution = dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	}
	header, err := proto.Marshal(&dtaskv1.JobHeader{Name: "j", Policies: []*dtaskv1.TaskPolicy{{TimeoutMs: 1000, Execution: execution}}})
	if err != nil {
		tb.Fatal(err)
	}
	b := fsm.NewChunkBuilder(0)
	b.Add("a", 0, nil, []byte("body"))
	chunk := b.Chunk()
	return []fsm.Op{
		&fsm.BeginUpload{ID: id, Key: "key" + string(rune('0'+id)), KeyExpires: 1 << 50, Header: header, Total: 1},
		&fsm.AddChunk{Job: id, Chunk: chunk}, &fsm.SealUpload{Job: id, Sum: chunk.Sum(0)},
	}
}

// backUp writes a backup of a state, with the history unless h is nil.
func backUp(tb testing.TB, m *fsm.Machine, h *history.History) (path string) {
	tb.Helper()
	snapshot := m.Snapshot()
	s := snapshot.State()
	term, _ := s.Term()
	var file bytes.Buffer
	w, err := backup.NewWriter(&file, backup.Manifest{
		ClusterID: s.ClusterID(), ServerID: "n1", CreatedAt: time.UnixMilli(5), Version: "v9", Index: snapshot.Index(), Term: term,
		Epoch: s.Epoch(), Level: uint32(s.Level()), History: h != nil,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := snapshot.Persist(w); err != nil {
		tb.Fatal(err)
	}
	if h != nil {
		if _, err := h.Serve(tb.Context(), history.Position{}, snapshot.Index(), func(c history.Chunk, _ bool) error {
			return w.Job(backup.Chunk{Index: c.Index, Job: uint64(c.Job), Number: c.Number, Total: c.Total, Data: c.Data})
		}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	path = filepath.Join(tb.TempDir(), "cluster.dtbk")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func restoring(t *testing.T, file string) RestoreConfig {
	t.Helper()
	return RestoreConfig{
		File: file, DataDir: filepath.Join(t.TempDir(), "parent", "n7"), Server: "n7", Address: "127.0.0.1:1", Kind: logstore.Bolt,
		Logger: slog.New(slog.DiscardHandler),
	}
}

func TestABackupIsInspected(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	r, err := InspectBackup(backUp(t, m, h), "")
	if err != nil {
		t.Fatal(err)
	}
	if r.ClusterID != oldCluster || r.ServerID != "n1" || r.Index != m.Index() || r.Term != 3 || r.Epoch != 1 || r.Version != "v9" || !r.History || r.HistoryJobs != 1 ||
		r.Jobs["running"] != 2 || len(r.Jobs) != 1 || r.Workers != 1 || r.Identities != 1 || len(r.SHA256) != 64 || r.Bytes == 0 {
		t.Errorf("got %+v", r)
	}
	var text strings.Builder
	r.Write(&text)
	for _, want := range []string{"cluster        " + oldCluster + ", epoch 1", "jobs           2 running", "history        1 jobs"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
}

func TestABackupIsRestoredAsANewCluster(t *testing.T) {
	t.Parallel()
	for _, kind := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		m, h := stateToSave(t)
		cfg := restoring(t, backUp(t, m, h))
		cfg.Kind, cfg.Expect = kind, oldCluster
		done, err := Restore(t.Context(), cfg, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if done.OldCluster != oldCluster || done.NewCluster == oldCluster || done.Jobs != 2 || done.History != 1 || done.Requeued != 1 ||
			len(done.LostTasks) != 1 || done.LostTasks[0] != "3/a" || done.DroppedIdentities != 1 || done.Workers != 1 {
			t.Errorf("got %+v", done)
		}
		got, err := Inspect(cfg.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		if got.ClusterID != done.NewCluster || got.ServerID != "n7" || got.LogStore != string(kind) || got.LastIndex != m.Index()+1<<20 || got.LastTerm != 4 ||
			got.Epoch != 1+1<<20 || len(got.Members) != 1 || got.Members[0] != done.Server || got.Jobs["failed"] != 1 {
			t.Errorf("got %+v", got)
		}
		wantNoWait(t, cfg.DataDir, kind)
		restored, err := history.Open(history.Config{Path: filepath.Join(cfg.DataDir, historyName), Logger: cfg.Logger})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := restored.Find(1); !ok || err != nil || restored.Incomplete() || restored.Stats().CompleteTo != got.LastIndex {
			t.Errorf("job 1 is in the history: %t, %v; %+v", ok, err, restored.Stats())
		}
		if err := restored.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without the history, the new cluster has none, and does not wait for one.
func TestABackupWithoutHistoryIsRestored(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	cfg := restoring(t, backUp(t, m, nil))
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil { // an empty directory
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), cfg, time.Now()); err != nil {
		t.Fatal(err)
	}
	restored, err := history.Open(history.Config{Path: filepath.Join(cfg.DataDir, historyName), Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if s := restored.Stats(); s.Incomplete || s.Jobs != 0 {
		t.Errorf("got %+v", s)
	}
	if err := restored.Close(); err != nil {
		t.Error(err)
	}
}

// A backup that can't be restored changes nothing: the directory is not there, and nothing
// is left beside it.
func TestWhatIsNotRestoredLeavesNothing(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	path := backUp(t, m, h)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) func(*RestoreConfig) {
		return func(cfg *RestoreConfig) {
			cfg.File = filepath.Join(t.TempDir(), "changed.dtbk")
			if err := os.WriteFile(cfg.File, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	flipped := bytes.Clone(file)
	flipped[len(flipped)-200] ^= 1 // in the history
	for name, test := range map[string]struct {
		change  func(*RestoreConfig)
		message string
	}{
		"half a file":                  {write(file[:len(file)/2]), "backup is incomplete"},
		"without its end":              {write(file[:len(file)-1]), "backup is incomplete"},
		"a changed bit in the history": {write(flipped), "backup is damaged"},
		"longer":                       {write(append(bytes.Clone(file), 0)), "data follow its end"},
		"another file":                 {write([]byte("a job file")), "not a backup"},
		"missing":                      {func(cfg *RestoreConfig) { cfg.File += "x" }, "no such file"},
		"of another cluster":           {func(cfg *RestoreConfig) { cfg.Expect = "ffff" }, "is a backup of cluster " + oldCluster + ", not of ffff"},
	} {
		cfg := restoring(t, path)
		test.change(&cfg)
		_, err := Restore(t.Context(), cfg, time.Now())
		if err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: got %v, want %q", name, err, test.message)
		}
		if left, err := os.ReadDir(filepath.Dir(cfg.DataDir)); err == nil && len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestABackupIsNotRestoredOverData(t *testing.T) {
	t.Parallel()
	m, _ := stateToSave(t)
	cfg := restoring(t, backUp(t, m, nil))
	cfg.DataDir = directoryOf(t, logstore.Bolt)
	before, err := Inspect(cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Restore(t.Context(), cfg, time.Now())
	if _, refused := errors.AsType[*RefusedError](err); !refused || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("got %v", err)
	}
	after, err := Inspect(cfg.DataDir)
	if err != nil || after.Instance != before.Instance || after.ClusterID != before.ClusterID {
		t.Errorf("the directory has changed: %+v, %v", after, err)
	}
}

func TestABackupOfANewerLevelIsRefused(t *testing.T) {
	t.Parallel()
	m := fsm.NewMachine()
	m.SupportLevel(fsm.MaxLevel + 1)
	m.Apply(1, fsm.Encode(nil, fsm.Entry{Ops: []fsm.Op{&fsm.SetLevel{Level: fsm.MaxLevel + 1}}}))
	cfg := restoring(t, backUp(t, m, nil))
	_, err := Restore(t.Context(), cfg, time.Now())
	level, above := errors.AsType[*fsm.LevelError](err)
	if !above || level.Level != fsm.MaxLevel+1 || level.Version != "v9" || IsBackupDamage(err) {
		t.Errorf("got %v", err)
	}
	if _, err := InspectBackup(cfg.File, ""); !errors.As(err, &level) {
		t.Errorf("inspecting: got %v", err)
	}
}
