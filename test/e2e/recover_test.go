package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// dtaskd runs a command of dtaskd on a data directory, and returns its exit code and
// what it prints.
func dtaskd(t *testing.T, c *cluster.Cluster, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.Programs.Path("dtaskd"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// runs is dtaskd for a command that must succeed.
func runs(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	code, stdout, stderr := dtaskd(t, c, args...)
	if code != 0 {
		t.Fatalf("dtaskd %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// refuses is dtaskd for a command that must end with exit code 1 and a message.
func refuses(t *testing.T, c *cluster.Cluster, message string, args ...string) {
	t.Helper()
	if code, stdout, stderr := dtaskd(t, c, args...); code != 1 || !strings.Contains(stderr, message) {
		t.Errorf("dtaskd %q: exit code %d, want 1 and %q\n%s%s", args, code, message, stdout, stderr)
	}
}

// learningTime is how long after an entry was applied a replica without further entries
// has persisted that it is committed, on a busy machine.
const learningTime = 2 * time.Second

// split is a cluster of which n1 has acknowledged jobs that n2 and n3 have lost: their
// directories are a few jobs old. Nothing runs but the worker.
type split struct {
	*cluster.Cluster

	n1, n2, n3 *cluster.Coordinator
	before     string   // a job that all have
	only       []string // jobs that only n1 has
}

func splitCluster(t *testing.T, store string) *split {
	t.Helper()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--log-store", store}})
	all := c.Coordinators()
	s := &split{Cluster: c, n1: all[0], n2: all[1], n3: all[2]}
	one := func(name string) string {
		id := clustertest.Submit(t, c.Ctl, cluster.JobFile(name, cluster.Builtin("a", "echo", name),
			cluster.Builtin("b", "echo", "${{ item }}").After("a").With("array", map[string]any{"items": []int{3, 1, 2}, "chunk": 2}),
			cluster.Builtin("c", "echo", "").After("b").With("array", map[string]any{"range": "0-10:5,20"})))
		completed(t, c.Ctl, id)
		return id
	}
	s.before = one("before")
	stopAll := func() {
		for _, n := range all {
			clustertest.Must(t, n.Kill())
		}
	}
	stopAll()
	for _, n := range all[1:] {
		clustertest.Must(t, os.CopyFS(n.DataDir+".copy", os.DirFS(n.DataDir)))
	}
	clustertest.Must(t, c.Start(ctx))
	for i := range 3 {
		s.only = append(s.only, one(fmt.Sprintf("acknowledged-%d", i)))
	}
	awaitAllOf(t, c, s.n1)
	clustertest.Must(t, cluster.Pause(ctx, learningTime))
	stopAll()
	for _, n := range all[1:] {
		clustertest.Must(t, os.RemoveAll(n.DataDir))
		clustertest.Must(t, os.Rename(n.DataDir+".copy", n.DataDir))
	}
	return s
}

// inspected is a part of the output of dtaskd inspect.
type inspected struct {
	ServerID  string            `json:"server_id"`
	ClusterID string            `json:"cluster_id"`
	LogStore  string            `json:"log_store"`
	Term      uint64            `json:"term"`
	LastIndex uint64            `json:"last_index"`
	Committed uint64            `json:"committed"`
	Epoch     uint64            `json:"epoch"`
	Members   []cluster.Member  `json:"members"`
	Jobs      map[string]int    `json:"jobs"`
	Conflict  *datadir.Conflict `json:"conflict"`
	Damage    []string          `json:"damage"`
}

func inspect(t *testing.T, c *cluster.Cluster, n *cluster.Coordinator) (r inspected) {
	t.Helper()
	clustertest.Must(t, json.Unmarshal([]byte(runs(t, c, "inspect", "--data-dir", n.DataDir, "-o", "json")), &r))
	return r
}

// serveWithoutN1 starts n2 and n3, and waits until their leader has a later term than n1,
// so that n1 follows it when it returns.
func (s *split) serveWithoutN1(t *testing.T) cluster.Ctl {
	t.Helper()
	ctx := t.Context()
	term := inspect(t, s.Cluster, s.n1).Term
	clustertest.Must(t, s.n2.Start(ctx))
	clustertest.Must(t, s.n3.Start(ctx))
	serving := s.At(s.n2, s.n3)
	clustertest.Must(t, cluster.Until(ctx, fmt.Sprintf("n2 and n3 have a leader of a term above %d", term), guard, func(ctx context.Context) error {
		status, err := serving.Status(ctx)
		if err != nil || status.Leader != "" && status.Term > term {
			return err
		}
		if status.Leader != "" {
			_ = serving.Run(ctx, "cluster", "transfer-leader") // refused while the other one catches up
		}
		return fmt.Errorf("leader %q, term %d", status.Leader, status.Term)
	}))
	return serving
}

// staysOut starts n1, which refuses to lose its jobs and exits, and then stays out and
// raises an alarm when it is started again.
func (s *split) staysOut(t *testing.T, serving cluster.Ctl) {
	t.Helper()
	ctx := t.Context()
	clustertest.Must(t, s.n1.Start(ctx))
	awaitExit(t, s.n1, "refuses to lose committed log entries", "stays out of the cluster")
	clustertest.Must(t, s.n1.Start(ctx))
	clustertest.Must(t, cluster.Until(ctx, "the cluster reports that n1 stays out", guard, func(ctx context.Context) error {
		status, err := serving.Status(ctx)
		if err != nil {
			return err
		}
		state := status.Member("n1").State // unreachable if it doesn't answer in time
		for _, a := range status.Alarms {
			if a.Member == "n1" && a.Kind == membership.AlarmHistoryConflict && state == "halted" {
				return nil
			}
		}
		return fmt.Errorf("n1 is %s, alarms %+v", state, status.Alarms)
	}))
	if !s.n1.Running() {
		t.Error("n1 does not stay up")
	}
	clustertest.Must(t, s.n1.Terminate())
	_, err := s.n1.Wait(ctx)
	clustertest.Must(t, err)
}

// The majority's history is kept, as in the runbook "A replica stays out" of
// docs/operations.md: the jobs that only n1 has are exported and submitted again, and n1
// rejoins.
func TestAReplicaThatStaysOutExportsItsJobsAndRejoins(t *testing.T) {
	t.Parallel()
	for _, store := range cluster.Stores() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			exportAndRejoin(t, splitCluster(t, store), store)
		})
	}
}

func exportAndRejoin(t *testing.T, s *split, store string) {
	t.Helper()
	ctx := t.Context()
	serving := s.serveWithoutN1(t)
	other := clustertest.Submit(t, serving, cluster.JobFile("other", cluster.Builtin("a", "noop", "")))
	if other != s.only[0] {
		t.Errorf("the majority gave job %s to another job, want the reused %s", other, s.only[0])
	}
	s.staysOut(t, serving)

	text := runs(t, s.Cluster, "inspect", "--data-dir", s.n1.DataDir)
	for _, want := range []string{"server         n1 (--id n1)", "log store      " + store, "CONFLICT", "the leader of term", "member         n3 at", "4 completed"} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect does not print %q:\n%s", want, text)
		}
	}
	found := inspect(t, s.Cluster, s.n1)
	if c := found.Conflict; c == nil || c.Committed != found.Committed || c.Truncated > c.Committed {
		t.Errorf("conflict %+v, committed up to %d", c, found.Committed)
	}
	export := filepath.Join(s.Dir, "export")
	var missing struct {
		Missing []struct {
			ID          string `json:"id"`
			Name        string `json:"name"`
			Reused      bool   `json:"id_reused"`
			Unconfirmed bool   `json:"unconfirmed"`
			Key         string `json:"idempotency_key"`
			File        string `json:"file"`
		} `json:"missing"`
	}
	out := runs(t, s.Cluster, "inspect", "--data-dir", s.n1.DataDir, "--only-here", "--against", s.n2.Addr+","+s.n3.Addr, "--export", export, "-o", "json")
	clustertest.Must(t, json.Unmarshal([]byte(out), &missing))
	if len(missing.Missing) != len(s.only) {
		t.Fatalf("only n1 has %s, want %q", out, s.only)
	}
	for i, job := range missing.Missing {
		if job.ID != s.only[i] || job.Name != fmt.Sprintf("acknowledged-%d", i) || job.Reused != (i == 0) || job.Unconfirmed {
			t.Errorf("got %+v, want job %s", job, s.only[i])
		}
		again := serving.Run(ctx, "submit", job.File, "--idempotency-key", job.Key, "--wait")
		clustertest.Must(t, again.Err())
	}

	refuses(t, s.Cluster, "repeat the command with --yes", "rejoin", "--data-dir", s.n1.DataDir)
	if found := inspect(t, s.Cluster, s.n1); found.Conflict == nil {
		t.Error("an unconfirmed rejoin cleared the conflict")
	}
	runs(t, s.Cluster, "rejoin", "--data-dir", s.n1.DataDir, "--yes")
	kept, err := filepath.Glob(s.n1.DataDir + ".damaged-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	clustertest.Must(t, s.n1.Start(ctx))
	awaitVoters(t, s.Cluster, "n1-1", "n2", "n3")
}

// One replica's history is kept: a new cluster with its jobs, which the others join.
func TestAClusterIsRecoveredFromOneReplica(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"bolt", "wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := splitCluster(t, store)
			old := inspect(t, s.Cluster, s.n1)
			if old.LogStore != store || old.Jobs["completed"] != 4 || len(old.Members) != 3 || len(old.Damage) > 0 {
				t.Errorf("inspect: %+v", old)
			}
			command := []string{"recover", "--data-dir", s.n1.DataDir, "--lost", "n2,n3"}
			refuses(t, s.Cluster, "which is a majority", "recover", "--data-dir", s.n1.DataDir, "--lost", "n2")
			refuses(t, s.Cluster, "but the members are", "recover", "--data-dir", s.n1.DataDir, "--lost", "n2,n7")
			clustertest.Must(t, s.n2.Start(ctx))
			clustertest.Must(t, cluster.Until(ctx, "n2 answers", guard, func(ctx context.Context) error { return s.n2.Get(ctx, "/healthz") }))
			refuses(t, s.Cluster, "server n2 still runs", command...)
			clustertest.Must(t, s.n2.Kill())
			refuses(t, s.Cluster, "repeat the command with --yes", command...)
			if again := inspect(t, s.Cluster, s.n1); again.ClusterID != old.ClusterID {
				t.Error("an unconfirmed recovery changed the directory")
			}
			ahead := filepath.Join(s.Dir, "n1.json")
			clustertest.Must(t, os.WriteFile(ahead, []byte(runs(t, s.Cluster, "inspect", "--data-dir", s.n1.DataDir, "-o", "json")), 0o600))
			refuses(t, s.Cluster, "server n1 is further ahead", "recover", "--data-dir", s.n2.DataDir, "--lost", "n1,n3", "--than", ahead, "--yes")

			runs(t, s.Cluster, append(command, "--yes")...)
			recovered := inspect(t, s.Cluster, s.n1)
			if recovered.ClusterID == old.ClusterID || recovered.Epoch != old.Epoch+1 || recovered.Jobs["completed"] != 4 || len(recovered.Members) != 1 {
				t.Errorf("recovered: %+v", recovered)
			}
			kept, err := filepath.Glob(s.n1.DataDir + ".replaced-*")
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept %q, %v", kept, err)
			}
			clustertest.Must(t, s.n1.Start(ctx))
			clustertest.Must(t, s.AwaitCoordinator(ctx, s.n1))
			for _, id := range append(slices.Clone(s.only), s.before) {
				completed(t, s.Ctl, id)
			}
			w := s.Workers()[0]
			clustertest.Must(t, cluster.Until(ctx, "the worker reports the other cluster", guard, func(context.Context) error {
				if !w.LogHas("another cluster") {
					return cluster.ErrNotYet
				}
				return nil
			}))
			clustertest.Must(t, w.Kill())
			clustertest.Must(t, w.Start(ctx))
			id := clustertest.Submit(t, s.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", "")))
			completed(t, s.Ctl, id)
			if len(id) < 7 {
				t.Errorf("the next job is %s, want a number after a gap", id)
			}

			// The old directories are refused; emptied ones join.
			clustertest.Must(t, s.n2.Start(ctx))
			awaitExit(t, s.n2, "belongs to cluster "+old.ClusterID, recovered.ClusterID)
			for _, n := range []*cluster.Coordinator{s.n2, s.n3} {
				runs(t, s.Cluster, "rejoin", "--data-dir", n.DataDir, "--yes")
				clustertest.Must(t, n.Start(ctx))
				// The leader may not have connected to it again yet.
				clustertest.Must(t, cluster.Until(ctx, n.Name+" is added", guard, func(ctx context.Context) error {
					return s.Run(ctx, "cluster", "add", n.Name, n.Addr, "--wait").Err()
				}))
			}
			awaitVoters(t, s.Cluster, "n1", "n2", "n3")
			completed(t, s.Ctl, s.only[0])
		})
	}
}
