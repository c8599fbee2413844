package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator/logstore"
)

func TestIdentityBelongsToOneServerAndOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "n1"); err == nil {
		t.Error("a directory in use was opened")
	}
	made := f.Identity()
	if len(made.Instance) != 32 || made.ClusterID != "" {
		t.Errorf("a new identity is %+v", made)
	}
	if err := errors.Join(f.SetClusterID("c1"), f.SetClusterID("c1")); err != nil {
		t.Error(err)
	}
	if err := f.SetClusterID("c2"); !errors.Is(err, ErrClusterKnown) {
		t.Errorf("another cluster: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "n2"); err == nil {
		t.Error("the directory of n1 was opened for n2")
	}
	f, err = Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Identity(); got.Instance != made.Instance || got.ClusterID != "c1" {
		t.Errorf("read back as %+v", got)
	}
	if info, err := os.Stat(filepath.Join(dir, IdentityName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestARenamedDirectoryOpensUnderItsConfiguredID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(id string) (*Dir, error) { return Open(dir, id) }
	f, err := open("n2")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"n2-1", "n2-2"} {
		if err := f.Rename(id, "c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SetOthers(map[string]string{"n1": "i1"}, map[string]string{"n1": "host1:7460"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("n2-3", "another cluster"); !errors.Is(err, ErrClusterKnown) {
		t.Errorf("renamed by another cluster: %v", err)
	}
	if err := f.MarkStored(); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("n2-3", "c"); err == nil {
		t.Error("a directory with state got another id")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for id, ok := range map[string]bool{"n2": true, "n2-2": true, "n2-1": false, "n3": false} {
		f, err := open(id)
		if (err == nil) != ok {
			t.Errorf("started as %s: %v", id, err)
		}
		if err == nil {
			if got := f.Identity(); got.ServerID != "n2-2" || got.Base() != "n2" || got.ClusterID != "c" || got.Instances["n1"] != "i1" || got.Members["n1"] != "host1:7460" {
				t.Errorf("identity %+v", got)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheStoredLevelIsOnlyRaised(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		level, want uint32
		version     string
	}{{2, 2, "v0.2.0"}, {3, 3, "v0.3.0"}, {2, 3, "v0.3.0"}} {
		d, err := Open(dir, "n1")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.SetLevel(c.level, c.version); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if id, err := readIdentity(dir); err != nil || id.Level != c.want || id.LevelVersion != c.version {
			t.Errorf("after level %d: got %+v, %v, want level %d of %s", c.level, id, err, c.want, c.version)
		}
	}
}

// Every other number is refused, also those of directories that this build could read
// in part, and nothing in the directory changes.
func TestADirectoryOfAnotherBuildIsRefusedUnchanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"the build before":   {`{"version": 3, "server_id": "n1", "instance": "00112233445566778899aabbccddeeff", "cluster_id": "c", "stored": true}`, "has format 3, and this build requires format 4"},
		"no number":          {`{"server_id": "n1", "instance": "00112233445566778899aabbccddeeff"}`, "has format 0"},
		"a later build":      {`{"version": 5, "server_id": {"id": "n1"}}`, "has format 5"},
		"of another replica": {`{"version": 1, "server_id": "n2", "instance": "i"}`, "has format 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{IdentityName: c.text, logstore.FileName: "pages of another format"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(dir, "n1")
			if _, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, damaged := errors.AsType[*logstore.DamageError](err); damaged {
				t.Error("the directory counts as damaged")
			}
			if got, err := os.ReadFile(filepath.Join(dir, IdentityName)); err != nil || string(got) != c.text {
				t.Errorf("the identity is now %q, %v", got, err)
			}
		})
	}
}
