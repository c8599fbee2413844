package offline

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
)

// addEncrypted adds a backup to a directory, as dtaskctl backup save --to --encrypt-to does.
func addEncrypted(t *testing.T, dir string, to backup.Recipients, m *fsm.Machine, h *history.History) {
	t.Helper()
	d, err := backup.OpenDirectory(dir, ".test-")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := d.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Discard()
	snapshot, from := m.Snapshot(), history.Position{Index: d.HistoryTo()}
	if from.Index > 0 {
		from.Job = math.MaxUint64
	}
	s := snapshot.State()
	w, err := backup.NewWriter(whole, backup.Manifest{
		ClusterID: s.ClusterID(), ServerID: "n1", Index: snapshot.Index(), Term: 3, Epoch: s.Epoch(), Level: uint32(s.Level()), History: true, HistoryAfter: from.Index,
	})
	if err == nil {
		err = snapshot.Persist(w)
	}
	if err == nil {
		_, err = h.Serve(t.Context(), from, snapshot.Index(), func(c history.Chunk, _ bool) error {
			return w.Job(backup.Chunk{Index: c.Index, Job: uint64(c.Job), Number: c.Number, Total: c.Total, Data: c.Data})
		})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(whole, nil); err != nil {
		t.Fatal(err)
	}
}

// encryptedSet is a directory with two encrypted backups, between which a second job has left
// the state, and the file with the key that can read them.
func encryptedSet(t *testing.T) (dir, identities string) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identities = filepath.Join(t.TempDir(), "backups.key")
	if err := os.WriteFile(identities, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := backup.ParseRecipients([]string{key.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	m, h := stateToSave(t)
	dir = t.TempDir()
	addEncrypted(t, dir, to, m, h)
	apply(t, m, &fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: held(2)}}})
	apply(t, m, &fsm.Archive{Items: []fsm.JobID{2}})
	addEncrypted(t, dir, to, m, h)
	return dir, identities
}

func TestAnEncryptedDirectoryIsInspectedAndRestored(t *testing.T) {
	t.Parallel()
	dir, identities := encryptedSet(t)
	report, err := InspectBackup(dir, identities)
	if err != nil || !report.Encrypted || report.HistoryJobs != 2 || len(report.HistoryFiles) != 2 {
		t.Fatalf("got %+v, %v", report, err)
	}
	size := uint64(0)
	for _, path := range append(report.HistoryFiles, report.File) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += uint64(info.Size())
	}
	if report.Bytes != size {
		t.Errorf("the report has %d bytes, the files %d", report.Bytes, size)
	}
	cfg := restoring(t, dir)
	if _, err := Restore(t.Context(), cfg, time.Now()); err == nil || !strings.Contains(err.Error(), "it is encrypted: name the file with the secret key of a recipient (--identity)") || IsBackupDamage(err) {
		t.Errorf("without identities: got %v", err)
	}
	cfg.Identities = identities
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
	if err := restored.Close(); err != nil {
		t.Error(err)
	}
}

func TestADamagedSegmentOfAnEncryptedDirectoryIsFound(t *testing.T) {
	t.Parallel()
	dir, identities := encryptedSet(t)
	report, err := InspectBackup(dir, identities)
	if err != nil {
		t.Fatal(err)
	}
	segment := report.HistoryFiles[0]
	contents, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	contents[len(contents)-1]++
	if err := os.WriteFile(segment, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := InspectBackup(dir, identities); !IsBackupDamage(err) || !strings.Contains(err.Error(), segment) {
		t.Errorf("got %v", err)
	}
}
