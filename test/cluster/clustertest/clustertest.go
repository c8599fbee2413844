// Package clustertest joins package cluster to testing: clusters that end with
// their test, whose directories are kept if it failed, and suites that take turns.
package clustertest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dtask/dtask/test/cluster"
)

// Main is the TestMain of a suite of whole processes: it waits for its turn,
// since two such suites at once on few cores disturb each other's times, builds
// the programs, and runs the tests. It returns the exit code.
func Main(m *testing.M) int {
	leave, err := turn()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer leave()
	dir, err := os.MkdirTemp("", "dtask-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a directory for the programs:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing but what go build made
	if err := watchSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := cluster.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(cluster.BinVariable, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// turn waits until no other suite of this user runs; leave lets the next one in.
func turn() (leave func(), err error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("dtask-suites-%d.lock", os.Getuid()))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("waiting for the turn of this suite: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = file.Close() }, nil // which unlocks it
		}
		if err != syscall.EINTR { //nolint:errorlint // what the kernel says, unwrapped
			_ = file.Close()
			return nil, fmt.Errorf("waiting for the turn of this suite: %w", err)
		}
	}
}

// watchSources looks at every source of the module, so that the go command knows
// that a result of this suite depends on them all and does not serve an old one.
func watchSources() error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "build") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") || entry.Name() == "go.mod" {
			_, err = os.Stat(path)
		}
		return err
	})
}

// maxName is how many bytes of a test's name are in the path of its cluster: with all of
// some names, the paths of sockets in it would be too long.
const maxName = 40

// New prepares a cluster whose processes end with the test. Its directory is
// removed with them, unless the test failed: then it is kept and named.
func New(tb testing.TB, cfg cluster.Config) *cluster.Cluster {
	tb.Helper()
	name := strings.NewReplacer("/", "-").Replace(tb.Name())
	name = name[:min(len(name), maxName)]
	dir, err := os.MkdirTemp("", "dtask-"+name+"-") //nolint:usetesting // it is kept if the test fails
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Dir = dir
	c, err := cluster.New(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("kept: %s", c.Dir)
			return
		}
		if err := c.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Start is New, and starts everything.
func Start(tb testing.TB, cfg cluster.Config) *cluster.Cluster {
	tb.Helper()
	c := New(tb, cfg)
	Must(tb, c.Start(tb.Context()))
	return c
}

// Must ends the test if err is not nil.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Leader returns the leader once there is one.
func Leader(tb testing.TB, c *cluster.Cluster) *cluster.Coordinator {
	tb.Helper()
	leader, err := c.AwaitLeader(tb.Context())
	Must(tb, err)
	return leader
}

// Submit submits a job file and returns the job's id.
func Submit(tb testing.TB, c cluster.Ctl, file string, args ...string) string {
	tb.Helper()
	id, err := c.Submit(tb.Context(), file, args...)
	Must(tb, err)
	return id
}
