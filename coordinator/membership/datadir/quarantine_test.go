package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
)

func TestADamagedDirectoryIsRenamed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var all []string
	for _, text := range []string{"first", "second"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		rewritten := filepath.Join(dir, logstore.FileName)
		if err := os.WriteFile(rewritten, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		kept, err := Quarantine(dir+"/", at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(kept, logstore.FileName)); err != nil || string(got) != text {
			t.Errorf("%s contains %q, %v", kept, got, err)
		}
		if _, err := os.Stat(rewritten); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", rewritten, err)
		}
		all = append(all, kept)
		at = at.Add(time.Second)
	}
	if found, err := Quarantined(dir); err != nil || !slices.Equal(found, all) || !strings.HasSuffix(all[0], "n1.damaged-20260504T030201.000Z") {
		t.Errorf("found %q, %v; want %q", found, err, all)
	}
}

// The files of a directory that cannot be renamed, such as a mount point, move into a
// directory inside it.
func TestADamagedDirectoryThatCannotBeRenamedIsKeptInside(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	taken := dir + ".damaged-20260504T030201.000Z"
	for _, d := range []string{dir, taken} { // the name exists, and nothing is ever overwritten
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{logstore.FileName, IdentityName, lockName} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := Quarantine(dir, at)
	if err != nil || filepath.Dir(kept) != dir {
		t.Fatalf("kept as %s, %v", kept, err)
	}
	for name, where := range map[string]string{logstore.FileName: kept, IdentityName: kept, lockName: dir} {
		if _, err := os.Stat(filepath.Join(where, name)); err != nil {
			t.Error(err)
		}
	}
	if found, err := Quarantined(dir); err != nil || len(found) != 2 {
		t.Errorf("found %q, %v", found, err)
	}
}

// dtaskd init and join store the settings and the certificate of a coordinator in its data
// directory. Without them, it could not start again.
func TestADamagedDirectoryKeepsTheSettingsOfItsReplica(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	if err := os.MkdirAll(filepath.Join(dir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{logstore.FileName, "dtaskd.yaml", filepath.Join("tls", "tls.key")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := Quarantine(dir, time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(dir, "dtaskd.yaml"), filepath.Join(dir, "tls", "tls.key"), filepath.Join(kept, logstore.FileName),
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, logstore.FileName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged log is still in use: %v", err)
	}
	if found, err := Quarantined(dir); err != nil || !slices.Equal(found, []string{kept}) {
		t.Errorf("found %q, %v, want %s", found, err, kept)
	}
}
