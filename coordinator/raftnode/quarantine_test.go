package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/transport"
)

func TestADamagedFolderIsKeptUnderAnotherName(t *testing.T) {
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
		kept, err := SetAside(dir+"/", at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(kept, logstore.FileName)); err != nil || string(got) != text {
			t.Errorf("%s holds %q, %v", kept, got, err)
		}
		if _, err := os.Stat(rewritten); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", rewritten, err)
		}
		all = append(all, kept)
		at = at.Add(time.Second)
	}
	if found, err := Aside(dir); err != nil || !slices.Equal(found, all) || !strings.HasSuffix(all[0], "n1.damaged-20260504T030201.000Z") {
		t.Errorf("found %q, %v; want %q", found, err, all)
	}
}

// A folder that cannot be renamed, such as a mount point, is emptied into a folder
// inside.
func TestADamagedFolderThatCannotBeRenamedIsKeptInside(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "n1")
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	taken := dir + ".damaged-20260504T030201.000Z"
	for _, d := range []string{dir, taken} { // the name is taken: nothing is ever overwritten
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{logstore.FileName, identityName, lockName} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := SetAside(dir, at)
	if err != nil || filepath.Dir(kept) != dir {
		t.Fatalf("kept as %s, %v", kept, err)
	}
	for name, where := range map[string]string{logstore.FileName: kept, identityName: kept, lockName: dir} {
		if _, err := os.Stat(filepath.Join(where, name)); err != nil {
			t.Error(err)
		}
	}
	if found, err := Aside(dir); err != nil || len(found) != 2 {
		t.Errorf("found %q, %v", found, err)
	}
}

// Whatever is damaged, the replica is told so and does not run.
func TestEveryDamagedFileKeepsTheReplicaFromStarting(t *testing.T) {
	t.Parallel()
	state := func(file string) func(*testing.T, *testNode) string {
		return func(t *testing.T, n *testNode) string {
			t.Helper()
			names, err := snapshotNames(n.dir)
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			return filepath.Join(n.dir, snapshotsDir, names[0], file)
		}
	}
	flip := func(at func(size int) int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			rewrite(t, path, func(data []byte) { data[at(len(data))] ^= 0x10 })
		}
	}
	half := func(size int) int { return size / 2 }
	for name, c := range map[string]struct {
		path   func(*testing.T, *testNode) string
		damage func(*testing.T, string)
	}{
		"the identity": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, identityName) },
			flip(func(int) int { return 0 }),
		},
		"the identity is lost": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, identityName) },
			func(t *testing.T, path string) {
				t.Helper()
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			},
		},
		"the state of the only snapshot": {state("state.bin"), flip(half)},
		"the meta data of the only snapshot": {
			state("meta.json"),
			flip(func(int) int { return 0 }),
		},
		"all of the store but its first pages": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, logstore.FileName) },
			func(t *testing.T, path string) {
				t.Helper()
				rewrite(t, path, func(data []byte) {
					for i := 2 * 4096; i < len(data); i += 16 {
						data[i] ^= 0x10
					}
				})
			},
		},
		"the store is cut": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, logstore.FileName) },
			func(t *testing.T, path string) {
				t.Helper()
				if err := os.Truncate(path, 3*4096); err != nil {
					t.Fatal(err)
				}
			},
		},
		"the store is lost": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, logstore.FileName) },
			func(t *testing.T, path string) {
				t.Helper()
				for _, gone := range []string{path, filepath.Join(filepath.Dir(path), snapshotsDir)} {
					if err := os.RemoveAll(gone); err != nil {
						t.Fatal(err)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t, 1, func(c *Config) { c.TrailingLogs = 1 })
			n := cl.leader(t)
			n.propose(t, 1, 50)
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.propose(t, 51, 5)
			n.stop(t)
			c.damage(t, c.path(t, n))

			identity, err := OpenIdentity(n.dir, n.id)
			if err == nil {
				n.identity = identity
				defer func() {
					if err := identity.Close(); err != nil {
						t.Error(err)
					}
				}()
				cfg := n.config(t)
				cfg.Listener = transport.NewMux(bufconn.Listen(1), quiet())
				var node *Node
				if node, err = Open(cfg); err == nil {
					_ = node.Close(t.Context())
				}
			}
			if _, damaged := errors.AsType[*logstore.DamageError](err); !damaged {
				t.Errorf("got %v, want that it is damaged", err)
			}
		})
	}
}

func TestAFolderThatTheClusterRenamedIsStartedUnderItsFirstID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(id string) (*IdentityFile, error) { return OpenIdentity(dir, id) }
	f, err := open("n2")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"n2-1", "n2-2"} {
		if err := f.Rename(id, "c"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SetInstances(map[string]string{"n1": "i1"}); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("n2-3", "another cluster"); !errors.Is(err, ErrClusterKnown) {
		t.Errorf("another cluster gave it a name: %v", err)
	}
	if err := f.markStored(); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("n2-3", "c"); err == nil {
		t.Error("a folder with state got another id")
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
			if got := f.Get(); got.ServerID != "n2-2" || got.Base() != "n2" || got.ClusterID != "c" || got.Instances["n1"] != "i1" {
				t.Errorf("it is %+v", got)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAReplicaWhoseFolderWasSetAsideFoundsNothing(t *testing.T) {
	t.Parallel()
	_, err := Form(t.Context(), FormConfig{Self: Identity{ServerID: "n1", Instance: "i"}, Logger: quiet(), Aside: []string{"/data/n1.damaged-x"}})
	var refused *transport.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "/data/n1.damaged-x") {
		t.Errorf("alone it got %v, want a refusal that names the folder", err)
	}
}
