package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A stream submits small jobs, one after another, while members change.
type stream struct {
	c     *cluster.Cluster
	stop  context.CancelFunc
	group sync.WaitGroup
	ids   []string // of one goroutine, until group is done
	err   error
}

func streaming(t *testing.T, c *cluster.Cluster) *stream {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &stream{c: c, stop: stop}
	ctl := c.Ctl // a copy: its addresses stay
	s.group.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id, err := ctl.Submit(t.Context(), cluster.JobFile(fmt.Sprintf("job-%d", n), //nolint:contextcheck // a started submission is finished after ctx is done
				cluster.Builtin("a", "noop", ""), cluster.Builtin("b", "sleep", "20ms").After("a"), cluster.Builtin("c", "noop", "").After("b")))
			if err != nil {
				s.err = err
				return
			}
			s.ids = append(s.ids, id)
		}
	})
	t.Cleanup(func() {
		stop()
		s.group.Wait()
	})
	return s
}

// judge ends the stream and checks that all acknowledged jobs completed, once.
func (s *stream) judge(t *testing.T) {
	t.Helper()
	s.stop()
	s.group.Wait()
	clustertest.Must(t, s.err)
	seen := make(map[string]bool)
	for _, id := range s.ids {
		if seen[id] {
			t.Errorf("got job %s for two submissions", id)
		}
		seen[id] = true
		job, err := s.c.AwaitEnd(t.Context(), id, guard)
		clustertest.Must(t, err)
		if job.State != "completed" || job.TasksCompleted != 3 {
			t.Errorf("job %s: got %s with %d of 3 tasks completed", id, job.State, job.TasksCompleted)
		}
	}
	t.Logf("%d jobs were stored and completed meanwhile", len(s.ids))
}

// awaitVoters waits until the members are exactly the given ones, and all are voters
// that answer.
func awaitVoters(t *testing.T, c *cluster.Cluster, want ...string) cluster.Status {
	t.Helper()
	var status cluster.Status
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("%q are the voters", want), guard, func(ctx context.Context) (err error) {
		if status, err = c.Status(ctx); err != nil {
			return err
		}
		var have []string
		for _, m := range status.Members {
			if m.Voter && m.State != "unreachable" {
				have = append(have, m.ID)
			}
		}
		slices.Sort(have)
		if status.Leader == "" || len(status.Members) != len(want) || !slices.Equal(have, want) {
			return fmt.Errorf("leader %q, members %+v", status.Leader, status.Members)
		}
		return nil
	}))
	return status
}

// awaitExit waits for a coordinator that must exit by itself, and checks its last
// output.
func awaitExit(t *testing.T, n *cluster.Coordinator, says ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	code, err := n.Wait(ctx)
	if err != nil || code == 0 {
		t.Errorf("%s: got exit code %d, %v; want it to exit by itself with an error", n.Name, code, err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(n.DataDir), n.Name+".log"))
	clustertest.Must(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := strings.Join(lines[max(0, len(lines)-12):], "\n")
	for _, s := range says {
		if !strings.Contains(last, s) {
			t.Errorf("%s: %q is missing in its last output:\n%s", n.Name, s, last)
		}
	}
}

func TestWipedReplicasRejoinUnderNewIDsUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: append(snapshotFlags(), "--auto-rejoin")})
	s := streaming(t, c)
	ids := []string{"n1", "n2", "n3"}
	wipe := func(i, times int) {
		t.Helper()
		n := c.Coordinators()[i]
		clustertest.Must(t, n.Kill())
		clustertest.Must(t, os.RemoveAll(n.DataDir))
		clustertest.Must(t, n.Start(ctx))
		ids[i] = fmt.Sprintf("%s-%d", n.Name, times)
		began := time.Now()
		awaitVoters(t, c, ids...) //nolint:contextcheck // it takes it from t
		t.Logf("%s is a voter %v after it was started on an empty directory", ids[i], time.Since(began).Round(time.Millisecond))
	}
	for i := range ids { // one after another, including the leader
		wipe(i, 1)
	}
	wipe(1, 2)
	again := c.Coordinators()[1]
	clustertest.Must(t, again.Kill()) // the same command line: it keeps its new ID
	clustertest.Must(t, again.Start(ctx))
	awaitVoters(t, c, ids...)
	s.judge(t)
	clustertest.Must(t, c.AwaitEqual(ctx))
}

func TestAClusterGrowsAndShrinksUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	s := streaming(t, c)
	ctl := func(args ...string) {
		t.Helper()
		clustertest.Must(t, c.Run(ctx, args...).Err())
	}
	var joined []*cluster.Coordinator
	for _, name := range []string{"n4", "n5"} {
		n, err := c.AddCoordinator(ctx, name)
		clustertest.Must(t, err)
		clustertest.Must(t, n.Start(ctx))
		answers := func(ctx context.Context) error { return n.Get(ctx, "/healthz") }
		clustertest.Must(t, cluster.Until(ctx, name+" answers", guard, answers))
		ctl("cluster", "add", name, n.Addr, "--wait")
		joined = append(joined, n)
	}
	awaitVoters(t, c, "n1", "n2", "n3", "n4", "n5")
	moving := clustertest.WatchStalls(t)
	ctl("cluster", "transfer-leader", "n5")
	status := awaitVoters(t, c, "n1", "n2", "n3", "n4", "n5")
	if status.Leader != "n5" && moving.Lost() == 0 {
		t.Errorf("got leader %s, want n5", status.Leader)
	}
	ctl("cluster", "remove", "n5") // the leader: it transfers leadership first
	awaitExit(t, joined[1], "was removed from the cluster")
	ctl("cluster", "remove", "n4")
	awaitExit(t, joined[0], "was removed from the cluster")
	stalls := clustertest.WatchStalls(t)
	before := awaitVoters(t, c, "n1", "n2", "n3")
	clustertest.Must(t, joined[0].Start(ctx)) // with its old data
	awaitExit(t, joined[0], "was removed from the cluster")
	if after := awaitVoters(t, c, "n1", "n2", "n3"); after.Term > before.Term+1 && stalls.Lost() == 0 {
		t.Errorf("got term %d, want %d: a removed replica started an election", after.Term, before.Term)
	}
	s.judge(t)
}

func TestADamagedDataDirectoryIsQuarantinedAndTheReplicaRejoins(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	n := c.Followers(clustertest.Leader(t, c))[0]
	clustertest.Must(t, n.Kill())
	store := filepath.Join(n.DataDir, "raft.db")
	data, err := os.ReadFile(store)
	clustertest.Must(t, err)
	for i := 2 * 4096; i < len(data); i += 64 { // all but the root pages
		data[i] ^= 0x55
	}
	clustertest.Must(t, os.WriteFile(store, data, 0o600))

	clustertest.Must(t, n.Start(ctx))
	awaitExit(t, n, "is damaged", "nothing was deleted", "dtaskd --id "+n.Name, "--auto-rejoin")
	kept, err := filepath.Glob(n.DataDir + ".damaged-*")
	clustertest.Must(t, err)
	if len(kept) != 1 {
		t.Fatalf("kept: %q", kept)
	}
	if same, err := os.ReadFile(filepath.Join(kept[0], "raft.db")); err != nil || len(same) != len(data) {
		t.Errorf("damaged store: got %d bytes, %v; want it unchanged", len(same), err)
	}
	clustertest.Must(t, n.Start(ctx))
	awaitExit(t, n, "with another", "--auto-rejoin")

	back := c.Again(n, "--auto-rejoin")
	clustertest.Must(t, back.Start(ctx))
	t.Cleanup(func() { clustertest.Must(t, back.Kill()) })
	want := []string{n.Name + "-1"}
	for _, other := range c.Coordinators() {
		if other != n {
			want = append(want, other.Name)
		}
	}
	slices.Sort(want)
	awaitVoters(t, c, want...)
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", ""))))
}

// awaitAllOf waits until a replica has applied all current entries of the leader.
// AwaitCaughtUp accepts a small lag, of a few small jobs.
func awaitAllOf(t *testing.T, c *cluster.Cluster, n *cluster.Coordinator) {
	t.Helper()
	all := uint64(0)
	clustertest.Must(t, cluster.Until(t.Context(), "the leader tells what it has applied", guard, func(ctx context.Context) error {
		status, err := c.Status(ctx)
		if all = status.Member(status.Leader).Applied; err == nil && all == 0 {
			err = fmt.Errorf("leader %q, members %+v", status.Leader, status.Members)
		}
		return err
	}))
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("%s has applied entry %d", n.Name, all), guard, func(ctx context.Context) error {
		now, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if m := now.Of(n); m.State == "unreachable" || m.Applied < all {
			return fmt.Errorf("%+v", m)
		}
		return nil
	}))
}

func TestAnOldCopyOfADataDirectoryIsNotUsed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	n := c.Followers(clustertest.Leader(t, c))[0]
	clustertest.Must(t, n.Kill())
	old := n.DataDir + ".copy"
	clustertest.Must(t, os.CopyFS(old, os.DirFS(n.DataDir)))
	clustertest.Must(t, n.Start(ctx))
	clustertest.Must(t, c.AwaitCaughtUp(ctx, n))
	for range 5 {
		completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("more", cluster.Builtin("a", "noop", ""))))
	}
	awaitAllOf(t, c, n)
	clustertest.Must(t, n.Kill())
	clustertest.Must(t, os.RemoveAll(n.DataDir))
	clustertest.Must(t, os.Rename(old, n.DataDir))
	clustertest.Must(t, n.Start(ctx))
	awaitExit(t, n, "older than acknowledged state", "nothing was deleted")
}

// Two wiped replicas of three must not form a cluster of their own, nor copy data
// from the third: it may lack acknowledged entries.
func TestAMajorityOfWipedReplicasFormsNoCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--auto-rejoin"}})
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("kept", cluster.Builtin("a", "noop", "")))
	completed(t, c.Ctl, id)
	for i, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
		if i > 0 {
			clustertest.Must(t, os.Rename(n.DataDir, n.DataDir+".away"))
		}
	}
	// The replica with data is reachable while the others search: without it they
	// are a majority of empty directories, as in a new cluster.
	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Start(ctx))
		clustertest.Must(t, cluster.Until(ctx, n.Name+" answers", guard, func(ctx context.Context) error { return n.Get(ctx, "/healthz") }))
	}
	clustertest.Must(t, cluster.Pause(ctx, 4*time.Second))
	status, err := c.Status(ctx)
	clustertest.Must(t, err)
	if status.Leader != "" {
		t.Errorf("%s leads, want no leader", status.Leader)
	}
	for i, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
		if i > 0 {
			clustertest.Must(t, os.RemoveAll(n.DataDir))
			clustertest.Must(t, os.Rename(n.DataDir+".away", n.DataDir))
		}
	}
	clustertest.Must(t, c.Start(ctx))
	completed(t, c.Ctl, id)
}
