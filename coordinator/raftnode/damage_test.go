package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
)

// A replica does not start on damaged data, and reports what is damaged.
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
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, datadir.IdentityName) },
			flip(func(int) int { return 0 }),
		},
		"the identity is lost": {
			func(_ *testing.T, n *testNode) string { return filepath.Join(n.dir, datadir.IdentityName) },
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

			identity, err := datadir.Open(n.dir, n.id)
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
				t.Errorf("got %v, want a DamageError", err)
			}
		})
	}
}
