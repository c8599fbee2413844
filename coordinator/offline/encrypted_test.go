package offline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/dtask/dtask/internal/backup"
)

// encrypted encrypts a file in place, and returns the file with the key that can read it.
func encrypted(t *testing.T, path string) (identities string) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identities = filepath.Join(t.TempDir(), "backups.key")
	if err := os.WriteFile(identities, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to, err := backup.ParseRecipients([]string{key.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := backup.Encrypt(file, to)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return identities
}

func TestAnEncryptedBackupIsInspectedAndRestored(t *testing.T) {
	t.Parallel()
	m, h := stateToSave(t)
	cfg := restoring(t, backUp(t, m, h))
	identities := encrypted(t, cfg.File)
	info, err := os.Stat(cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	report, err := InspectBackup(cfg.File, identities)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	report.Write(&text)
	if !report.Encrypted || report.ClusterID != oldCluster || report.HistoryJobs != 1 || int64(report.Bytes) != info.Size() || !strings.Contains(text.String(), " bytes, encrypted\n") {
		t.Errorf("got %+v\n%s", report, &text)
	}

	_, err = Restore(t.Context(), cfg, time.Now())
	if err == nil || !strings.Contains(err.Error(), cfg.File+": it is encrypted: name the file with the secret key of a recipient (--identity)") || IsBackupDamage(err) {
		t.Errorf("without identities: got %v", err)
	}
	cfg.Identities = identities + "x"
	if _, err := Restore(t.Context(), cfg, time.Now()); err == nil || !strings.Contains(err.Error(), "opening the identities") {
		t.Errorf("with a file that is missing: got %v", err)
	}
	cfg.Identities = identities
	done, err := Restore(t.Context(), cfg, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if done.OldCluster != oldCluster || done.Jobs != 2 || done.History != 1 {
		t.Errorf("got %+v", done)
	}

	file, err := os.ReadFile(cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	for what, changed := range map[string][]byte{"cut": file[:len(file)-1], "longer": append(file, 0)} {
		if err := os.WriteFile(cfg.File, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := InspectBackup(cfg.File, identities); !IsBackupDamage(err) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
