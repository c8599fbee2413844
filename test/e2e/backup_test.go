package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// runbookCommands returns the commands of a section of docs/operations.md, in order.
func runbookCommands(t *testing.T, heading string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	clustertest.Must(t, err)
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/operations.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	inside, isCommands := false, false
	for line := range strings.Lines(section) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "```"):
			inside, isCommands = !inside, line == "```" // others name the language of a file
		case inside && isCommands && line != "":
			commands = append(commands, line)
		}
	}
	return commands
}

// backedUpCluster is a cluster with three coordinators whose backup is restored.
type backedUpCluster struct {
	*cluster.Cluster

	n1    *cluster.Coordinator
	file  string   // the backup
	steps []string // that are left of the runbook
}

// next runs the next command of the runbook, which must begin with what is expected.
func (b *backedUpCluster) next(t *testing.T, want string) string {
	t.Helper()
	words := b.step(t, want)
	if words[0] == "dtaskd" {
		return runs(t, b.Cluster, words[1:]...)
	}
	answer := b.Run(t.Context(), words[1:]...)
	clustertest.Must(t, answer.Err())
	return answer.Stdout
}

// step takes the next command from the runbook, with the paths and addresses of this
// cluster.
func (b *backedUpCluster) step(t *testing.T, want string) []string {
	t.Helper()
	if len(b.steps) == 0 || !strings.HasPrefix(b.steps[0], want) {
		t.Fatalf("the runbook continues with %q, want %s", b.steps, want)
	}
	words := strings.Fields(strings.NewReplacer(
		"cluster.dtbk", b.file, "/mnt/backups", filepath.Join(b.Dir, "backups"), " backups", " "+filepath.Join(b.Dir, "backups"), "/var/lib/dtask/n1", b.n1.DataDir, "127.0.0.1:7460", b.n1.Addr, "HOST:PORT", b.Coordinator("n2").Addr,
	).Replace(b.steps[0]))
	b.steps = b.steps[1:]
	return words
}

// tokenTask prints its fencing token and attempt, and waits for a file of this name.
func tokenTask(id, gate string) cluster.TaskFile {
	return cluster.TaskFile{"id": id, "run": fmt.Sprintf(`echo "$DTASK_FENCING_TOKEN"; until [ -e '%s' ]; do sleep 0.1; done`, gate)}
}

// A backup is saved under load and restored, as docs/operations.md says. What was
// acknowledged before the backup is there, what ran runs again under a higher fencing token,
// and the worker of the old cluster, which still runs its attempt, is refused.
func TestABackupIsRestoredAsTheRunbookSays(t *testing.T) {
	t.Parallel()
	for _, store := range cluster.Stores() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			saveAndRestore(t, store)
		})
	}
}

func saveAndRestore(t *testing.T, store string) {
	t.Helper()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--log-store", store, "--keep-for", "100ms"}})
	b := &backedUpCluster{
		Cluster: c, n1: c.Coordinator("n1"), file: filepath.Join(c.Dir, "cluster.dtbk"), steps: runbookCommands(t, "Back up and restore"),
	}
	archived := clustertest.Submit(t, c.Ctl, cluster.JobFile("job-0", cluster.Builtin("a", "echo", "of 0")))
	completed(t, c.Ctl, archived)
	for _, n := range c.Coordinators() {
		clustertest.Must(t, cluster.Until(ctx, n.Name+" has the job in its history", guard, func(ctx context.Context) error {
			return hasAll(ctx, n, []string{archived})
		}))
	}
	gate := filepath.Join(c.Dir, "gate")
	running := clustertest.Submit(t, c.Ctl, cluster.JobFile("running", tokenTask("a", gate)))
	clustertest.Must(t, cluster.Until(ctx, "the task runs", guard, func(ctx context.Context) error {
		if c.Run(ctx, "logs", running+"/a").Stdout == "" {
			return cluster.ErrNotYet
		}
		return nil
	}))
	oldToken := strings.TrimSpace(c.Run(ctx, "logs", running+"/a").Stdout)
	acknowledged := saveUnderLoad(t, b)

	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	clustertest.Must(t, os.RemoveAll(b.n1.DataDir))
	refuses(t, c, "is a backup of cluster", "restore", b.file, "--data-dir", b.n1.DataDir, "--id", "n1", "--address", b.n1.Addr, "--expect", "ffff")
	refuses(t, c, "is not empty", "restore", b.file, "--data-dir", c.Coordinator("n2").DataDir, "--id", "n1", "--address", b.n1.Addr)
	b.restore(t, store)
	clustertest.Must(t, b.n1.Start(ctx))
	clustertest.Must(t, c.AwaitCoordinator(ctx, b.n1))
	for _, id := range append(slices.Clone(acknowledged), archived, running) {
		clustertest.Must(t, c.Run(ctx, "status", id).Err())
	}
	completed(t, c.Ctl, archived)
	b.fence(t, running, gate, oldToken)
	for _, id := range acknowledged {
		completed(t, c.Ctl, id)
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", "")))
	completed(t, c.Ctl, id)
	if len(id) < 7 {
		t.Errorf("the next job is %s, want a number after a gap", id)
	}

	clustertest.Must(t, os.RemoveAll(c.Coordinator("n2").DataDir))
	clustertest.Must(t, c.Coordinator("n2").Start(ctx))
	clustertest.Must(t, cluster.Until(ctx, "n2 answers", guard, func(ctx context.Context) error { return c.Coordinator("n2").Get(ctx, "/healthz") }))
	add := b.step(t, "dtaskctl cluster add n2")
	clustertest.Must(t, cluster.Until(ctx, "n2 is added", guard, func(ctx context.Context) error { return c.Run(ctx, add[1:]...).Err() }))
	awaitVoters(t, c, "n1", "n2")
	if len(b.steps) > 0 {
		t.Errorf("the test runs all of the runbook but %q", b.steps)
	}
}

// saveUnderLoad saves a backup while jobs are submitted, and returns those that were
// acknowledged before.
func saveUnderLoad(t *testing.T, b *backedUpCluster) (acknowledged []string) {
	t.Helper()
	submit := func(ctx context.Context, n int) (string, error) {
		return b.Submit(ctx, cluster.JobFile(fmt.Sprintf("load-%d", n), cluster.Builtin("a", "echo", "x"), cluster.Builtin("b", "noop", "").After("a")))
	}
	for n := range 5 {
		id, err := submit(t.Context(), n)
		clustertest.Must(t, err)
		acknowledged = append(acknowledged, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 5; ctx.Err() == nil && err == nil; n++ {
			_, err = submit(ctx, n)
		}
		if ctx.Err() != nil {
			err = nil
		}
		done <- err
	}()
	out := b.next(t, "dtaskctl backup save cluster.dtbk")
	cancel()
	clustertest.Must(t, <-done)
	if strings.Contains(out, "written by "+clustertest.Leader(t, b.Cluster).Name+"\n") {
		t.Logf("the leader wrote the backup: %s", out) // it may have changed since
	}
	set := filepath.Join(b.Dir, "backups")
	clustertest.Must(t, os.Mkdir(set, 0o700))
	b.next(t, "dtaskctl backup save --to backups")
	if out := b.next(t, "dtaskctl backup list backups"); !strings.Contains(out, "state-") || strings.Contains(out, "INCOMPLETE") {
		t.Errorf("list prints %s", out)
	}
	if out := runs(t, b.Cluster, "backup", "verify", set); !strings.Contains(out, "is complete") {
		t.Errorf("verify prints %s", out)
	}
	if info, err := os.Stat(b.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if out := b.next(t, "dtaskd backup verify"); !strings.Contains(out, "is complete") {
		t.Errorf("verify prints %s", out)
	}
	if out := b.next(t, "dtaskd backup inspect"); !strings.Contains(out, "member         n3 at") || !strings.Contains(out, "history        ") {
		t.Errorf("inspect prints %s", out)
	}
	return acknowledged
}

// restore restores the backup of n1.
func (b *backedUpCluster) restore(t *testing.T, store string) {
	t.Helper()
	b.steps[0] += " --log-store " + store
	began := time.Now()
	b.next(t, "dtaskd restore")
	t.Logf("restored in %v", time.Since(began))
	got := inspect(t, b.Cluster, b.n1)
	if got.Epoch <= 1<<20 || len(got.Members) != 1 || got.Members[0].ID != "n1" || len(got.Damage) > 0 || got.LogStore != store {
		t.Errorf("restored: %+v", got)
	}
}

// fence lets a new worker run what an old one still runs. Both may end: only the new one's
// result counts.
func (b *backedUpCluster) fence(t *testing.T, running, gate, oldToken string) {
	t.Helper()
	ctx := t.Context()
	old := b.Workers()[0]
	clustertest.Must(t, cluster.Until(ctx, "the old worker reports the other cluster", guard, func(context.Context) error {
		if !old.LogHas("another cluster") {
			return cluster.ErrNotYet
		}
		return nil
	}))
	fresh := b.AddWorker("w2")
	clustertest.Must(t, fresh.Start(ctx))
	clustertest.Must(t, os.WriteFile(gate, nil, 0o600))
	job := completed(t, b.Ctl, running)
	if job.Tasks[0].Worker != "w2" || job.Tasks[0].Attempt != 2 {
		t.Errorf("got %+v, want attempt 2 by w2", job.Tasks[0])
	}
	newToken := strings.TrimSpace(b.Run(ctx, "logs", running+"/a").Stdout)
	if len(newToken) < len(oldToken) || len(newToken) == len(oldToken) && newToken <= oldToken {
		t.Errorf("fencing token %s after %s", newToken, oldToken)
	}
	clustertest.Must(t, old.Kill())
}
