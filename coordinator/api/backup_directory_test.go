package api

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// wantFiles checks the names of the files in a directory.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the directory has %q, %v, want %q", got, err, want)
	}
}

// writeTo makes the server write a backup into a directory.
func (r *replica) writeTo(t *testing.T, dir string, keep uint32) (*dtaskv1.BackupRun, error) {
	t.Helper()
	got, err := r.admin.WriteBackup(t.Context(), &dtaskv1.WriteBackupRequest{To: "file://" + dir, Keep: keep})
	return got.GetRun(), err
}

func TestACoordinatorAddsBackupsToADirectory(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	r.archiveTwo(t)
	dir := t.TempDir()
	var cluster string
	r.machine.Read(func(st *fsm.State, _ uint64) { cluster = st.ClusterID() })
	left := filepath.Join(dir, ".dtaskd-"+cluster+"-n1@123") // by a process that was killed
	others := filepath.Join(dir, ".dtaskd-other-n1@456")     // being written by another cluster
	for _, path := range []string{left, others} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, err := r.writeTo(t, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := r.machine.Index()
	if first.GetServerId() != "n1" || first.GetTo() != "file://"+dir || first.GetFile() != backup.NewStateFile(at).Name || first.GetIndex() != at || first.GetBytes() == 0 {
		t.Errorf("got %v", first)
	}
	if err := os.Remove(others); err != nil {
		t.Errorf("the file of another cluster was removed: %v", err)
	}
	segment := backup.NewSegment(0, at).Name
	wantFiles(t, dir, segment, first.GetFile())
	file, err := os.Open(filepath.Join(dir, first.GetFile()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read only
	from, err := backup.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	state := fsm.NewMachine()
	state.SupportLevel(r.machine.MaxLevel())
	if err := state.Restore(from.State()); err != nil || from.Manifest().HistoryTo != at {
		t.Errorf("%+v, %v", from.Manifest(), err)
	}

	r.advance(t)
	second, err := r.writeTo(t, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, segment, second.GetFile()) // the oldest state was removed
}

// The coordinator has only public keys, and continues a directory that it can't read.
func TestACoordinatorAddsEncryptedBackupsToADirectory(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	r.archiveTwo(t)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := backup.TargetTo("file://"+dir, []string{key.Recipient().String()})
	for n := range 2 {
		run, err := r.WriteBackup(t.Context(), to, 0)
		if err != nil || run.GetTo() != to {
			t.Fatalf("run %d: %v, %v", n, run, err)
		}
		h, err := backup.ReadHead(filepath.Join(dir, run.GetFile()))
		if err != nil || !h.Encrypted || h.Index != run.GetIndex() {
			t.Errorf("run %d: %+v, %v", n, h, err)
		}
		contents, err := os.ReadFile(filepath.Join(dir, run.GetFile()))
		if err != nil {
			t.Fatal(err)
		}
		plain, _, err := backup.Decrypt(bytes.NewReader(contents), backup.Identities{key})
		if err != nil {
			t.Fatal(err)
		}
		from, err := backup.NewReader(plain)
		if err != nil {
			t.Fatal(err)
		}
		state := fsm.NewMachine()
		state.SupportLevel(r.machine.MaxLevel())
		if err := state.Restore(from.State()); err != nil {
			t.Errorf("run %d: %v", n, err)
		}
		r.advance(t)
	}
	_, err = r.writeTo(t, dir, 0)
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "the backups in "+dir+" are encrypted: encrypt this one, too") {
		t.Errorf("got %v", err)
	}
}

// The operator must learn why, and the directory has nothing that looks like a backup.
func TestABackupThatCanNotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	_, err := r.writeTo(t, gone, 0)
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "opening directory "+gone+": no such file or directory") {
		t.Errorf("got %v", err)
	}
	_, err = r.admin.WriteBackup(t.Context(), &dtaskv1.WriteBackupRequest{To: dir})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)

	var file strings.Builder
	w, err := backup.NewWriter(&file, backup.Manifest{ClusterID: "another", Index: 1})
	if err := errors.Join(err, w.Close(), os.WriteFile(filepath.Join(dir, backup.NewStateFile(1).Name), []byte(file.String()), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = r.writeTo(t, dir, 0)
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "has backups of cluster another") {
		t.Errorf("got %v", err)
	}
	wantFiles(t, dir, backup.NewStateFile(1).Name)
}

// A leader that is killed ends its calls.
func TestABackupWhoseCallerIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	killed := errors.New("killed")
	var r *replica
	r = build(t, change, withBackups(func() (uint64, error) {
		cancel(killed)
		return r.machine.Index(), nil
	}))
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
	dir := t.TempDir()
	if _, err := r.WriteBackup(ctx, "file://"+dir, 0); !errors.Is(err, killed) {
		t.Errorf("got %v", err)
	}
	wantFiles(t, dir)
}

func TestABackupWaitsForTheEndOfAnother(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	dir := t.TempDir()
	second := make(chan error, 1) // its result
	var once sync.Once
	var r *replica
	r = build(t, change, withBackups(func() (uint64, error) {
		once.Do(func() {
			go func() {
				_, err := r.WriteBackup(t.Context(), "file://"+dir, 0)
				second <- err
			}()
		})
		return r.machine.Index(), nil
	}))
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
	if _, err := r.WriteBackup(t.Context(), "file://"+dir, 0); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Errorf("the other one: %v", err)
	}
	wantFiles(t, dir, backup.NewStateFile(r.machine.Index()).Name)
	if _, err := setup(t).WriteBackup(t.Context(), "file://"+dir, 0); !errors.Is(err, errNoBackups) {
		t.Errorf("without a history: got %v", err)
	}
}

func TestABackupDoesNotWaitLongForTheEndOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{backups: semaphore.NewWeighted(1)}
		if err := s.awaitOtherBackup(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.awaitOtherBackup(t.Context()); !errors.Is(err, errBackupRuns) || time.Since(began) != otherBackupTimeout {
			t.Errorf("after %v: got %v", time.Since(began), err)
		}
		killed := errors.New("killed")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(killed)
		if err := s.awaitOtherBackup(ctx); !errors.Is(err, killed) {
			t.Errorf("its caller is gone: got %v", err)
		}
	})
}

// Otherwise each repetition would add a backup.
func TestABackupIsOneAlsoIfAnOldOneCanNotBeRemoved(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	r := setup(t, change, withBackups(nil))
	dir := t.TempDir()
	old := backup.NewStateFile(1).Name
	if err := os.MkdirAll(filepath.Join(dir, old, "in use"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := r.writeTo(t, dir, 0)
	if err == nil || first != nil {
		t.Fatalf("the newest state is a directory: got %v, %v", first, err)
	}
	if err := os.Rename(filepath.Join(dir, old), filepath.Join(dir, "aside")); err != nil {
		t.Fatal(err)
	}
	if _, err = r.writeTo(t, dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, old)); err != nil {
		t.Fatal(err)
	}
	r.advance(t)
	second, err := r.writeTo(t, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, old, second.GetFile()) // the others were removed
}

// An operator whose copies fail for hours must find the older backups, and a disk with space.
func TestABackupThatWasNotHandedOverIsReplacedAndDisplacesNoOlderOnes(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, true, nil)
	var down error
	var handed []string
	r := setup(t, change, withBackups(nil), func(cfg *Config) {
		cfg.Backups.HandOver = func(_ context.Context, added backup.Added) error {
			if handed = append(handed, filepath.Base(added.State)); added.Segment != "" {
				handed = append(handed, filepath.Base(added.Segment))
			}
			return down
		}
	})
	r.archiveTwo(t)
	dir := t.TempDir()
	name := func() string { return backup.NewStateFile(r.machine.Index()).Name }
	states := []string{name()}
	segment := backup.NewSegment(0, r.machine.Index()).Name
	if _, err := r.writeTo(t, dir, 1); err != nil {
		t.Fatal(err)
	}
	if want := []string{states[0], segment}; !slices.Equal(handed, want) {
		t.Errorf("handed over %q, want %q", handed, want)
	}
	down = errors.New("the network is down")
	for range 3 {
		r.advance(t)
		_, err := r.writeTo(t, dir, 1)
		wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
		if !strings.Contains(err.Error(), "the network is down") {
			t.Errorf("got %v", err)
		}
		wantFiles(t, dir, segment, states[0], name()) // without the one that was not handed over before
	}
	down = nil
	r.advance(t)
	for range 2 {
		if _, err := r.writeTo(t, dir, 2); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, dir, segment, states[0], name())
	}
	if _, err := r.writeTo(t, dir, 1); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, segment, name())
}

func TestTheScheduleOfBackupsIsSetAndShown(t *testing.T) {
	t.Parallel()
	r := setup(t)
	set := func(s *dtaskv1.BackupSchedule) error {
		_, err := r.admin.SetBackupSchedule(t.Context(), &dtaskv1.SetBackupScheduleRequest{Schedule: s})
		return err
	}
	status := func() *dtaskv1.BackupStatusResponse {
		t.Helper()
		got, err := r.admin.BackupStatus(t.Context(), &dtaskv1.BackupStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	good := func() *dtaskv1.BackupSchedule {
		return &dtaskv1.BackupSchedule{EveryMs: 3_600_000, To: "file:///mnt", Keep: 3}
	}
	err := set(good())
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "need feature level 3") {
		t.Errorf("below the level: got %v", err)
	}
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	if got := status(); got.GetSchedule() != nil || got.GetLast() != nil || got.GetFailed() != nil || got.GetNextAt() != 0 {
		t.Errorf("without one: got %v", got)
	}
	for what, damage := range map[string]func(*dtaskv1.BackupSchedule){
		"often": func(s *dtaskv1.BackupSchedule) { s.EveryMs = 59_999 }, "rarely": func(s *dtaskv1.BackupSchedule) { s.EveryMs = 1 << 62 },
		"nowhere": func(s *dtaskv1.BackupSchedule) { s.To = "" }, "elsewhere": func(s *dtaskv1.BackupSchedule) { s.To = "s3://bucket" },
	} {
		s := good()
		damage(s)
		if detail := wantError(t, set(s), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID); detail == nil {
			t.Error(what)
		}
	}
	wantError(t, set(nil), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	if err := set(good()); err != nil {
		t.Fatal(err)
	}
	got := status()
	setAt := got.GetSchedule().GetSetAt()
	if s := got.GetSchedule(); s.GetEveryMs() != 3_600_000 || s.GetTo() != "file:///mnt" || s.GetKeep() != 3 || setAt == 0 || got.GetNextAt() != setAt {
		t.Errorf("due at once: got %v", got)
	}
	run := fsm.BackupRun{ScheduleMS: setAt, AtMS: setAt + 1000, ServerID: "n2", To: "file:///mnt", File: "state-7.dtbk", Index: 7, Bytes: 100}
	r.leader.op(t, &fsm.RecordBackup{BackupRun: run})
	if got := status(); got.GetLast().GetFile() != "state-7.dtbk" || got.GetFailed() != nil || got.GetNextAt() != run.AtMS+3_600_000 {
		t.Errorf("after a success: got %v", got)
	}
	run.AtMS, run.File, run.Error = run.AtMS+5000, "", "no space"
	r.leader.op(t, &fsm.RecordBackup{BackupRun: run})
	if got := status(); got.GetLast().GetFile() != "state-7.dtbk" || got.GetFailed().GetError() != "no space" || got.GetNextAt() != run.AtMS+60_000 {
		t.Errorf("after a failure: got %v", got)
	}
	for _, already := range []bool{false, true} {
		deleted, err := r.admin.DeleteBackupSchedule(t.Context(), &dtaskv1.DeleteBackupScheduleRequest{})
		if err != nil || deleted.GetAlready() != already {
			t.Errorf("got %v, %v, want already: %t", deleted, err, already)
		}
	}
	if got := status(); got.GetSchedule() != nil || got.GetLast() == nil || got.GetFailed() != nil || got.GetNextAt() != 0 {
		t.Errorf("after the deletion: got %v", got)
	}
}
