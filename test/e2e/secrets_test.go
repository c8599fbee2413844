package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// wantNowhere checks that no file below a directory contains a text.
func wantNowhere(t *testing.T, dir, text string) {
	t.Helper()
	clustertest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		contents, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // temporary
		}
		if bytes.Contains(contents, []byte(text)) {
			t.Errorf("%s contains the secret", path)
		}
		return err
	}))
}

// wantHidden checks that neither environment nor arguments of processes contain a text.
func wantHidden(t *testing.T, pids []int, text string) {
	t.Helper()
	for _, pid := range pids {
		for _, file := range []string{"environ", "cmdline"} {
			contents, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // else it has ended
				t.Error(err)
			}
			if bytes.Contains(contents, []byte(text)) {
				t.Errorf("%s of process %d contains the secret", file, pid)
			}
		}
	}
}

// Commands read a secret, fail, and are killed with their worker. Its contents reach them,
// and nothing that a coordinator or worker stores.
func TestASecretReachesItsCommandsAndNothingElse(t *testing.T) {
	t.Parallel()
	secretReaches(t, "")
}

// Without root, the worker refuses to start.
func TestASecretReachesTheCommandsOfAnotherUser(t *testing.T) {
	t.Parallel()
	const user = "54321:54322"
	if os.Geteuid() == 0 {
		secretReaches(t, user)
		return
	}
	c := clustertest.New(t, cluster.Config{Workers: 1, WorkerFlags: []string{"--run-as", user}})
	w := c.Worker("w1")
	clustertest.Must(t, w.Start(t.Context()))
	if code, err := w.Wait(t.Context()); code != 1 || err != nil || !w.LogHas("start the worker as root") {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// secretReaches runs commands with a secret, under a user if it is not empty.
func secretReaches(t *testing.T, user string) {
	t.Helper()
	ctx := t.Context()
	s := startWithSecret(t, user)
	held := s.submitHeld(t)
	s.runsWhereTheSecretIs(t)
	s.isKilled(t)
	completed(t, s.c.Ctl, held)
	wantNowhere(t, s.c.Dir, s.canary)
	if !s.w.LogHas("worker started", "secrets=[canary]") {
		t.Error("the worker does not log the names of its secrets")
	}

	dir, err := os.Readlink(filepath.Join(s.w.Dir, "secrets"))
	clustertest.Must(t, err)
	clustertest.Must(t, s.w.Terminate())
	_, err = s.w.Wait(ctx)
	clustertest.Must(t, err)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a worker that has ended: %v", err)
	}
}

// secretStory is a cluster in which only w1 has a secret.
type secretStory struct {
	c              *cluster.Cluster
	w              *cluster.Worker
	canary, digest string // the secret, and what commands may return
	owner          int    // user of commands
	hold           string // file in which a command writes the path of its secret
}

// useSecret is a shell text that prints the digest of the secret.
const useSecret = "sha256sum < $DTASK_SECRET_CANARY_FILE | cut -d' ' -f1"

func startWithSecret(t *testing.T, user string) *secretStory {
	t.Helper()
	s := &secretStory{canary: "canary-" + rand.Text(), owner: os.Geteuid()}
	sum := sha256.Sum256([]byte(s.canary))
	s.digest = hex.EncodeToString(sum[:])
	secrets := filepath.Join(t.TempDir(), "secrets")
	clustertest.Must(t, os.Mkdir(secrets, 0o700))
	clustertest.Must(t, os.WriteFile(filepath.Join(secrets, "canary"), []byte(s.canary), 0o600))

	s.c = clustertest.New(t, cluster.Config{Workers: 2, Slots: 8})
	s.w = s.c.Worker("w1")
	s.w.AddArgs("--secrets-dir", secrets)
	shared := filepath.Join(s.c.Dir, "shared")
	clustertest.Must(t, os.Mkdir(shared, 0o700))
	s.hold = filepath.Join(shared, "held")
	if user != "" {
		s.owner = 54321
		s.w.AddArgs("--run-as", user)
		clustertest.Must(t, errors.Join(os.Chmod(s.c.Dir, 0o711), os.Chown(shared, s.owner, -1)))
	}
	clustertest.Must(t, s.c.Start(t.Context()))
	return s
}

// submitHeld submits a command whose first attempt holds its secret until it is killed.
func (s *secretStory) submitHeld(t *testing.T) string {
	t.Helper()
	return clustertest.Submit(t, s.c.Ctl, cluster.JobFile("held", cluster.TaskFile{
		"id": "held", "secrets": []string{"canary"}, "env": map[string]string{"SECRETS_MARK": s.digest},
		"run": fmt.Sprintf("if [ $DTASK_ATTEMPT = 1 ]; then echo $DTASK_SECRET_CANARY_FILE > %s.new; mv %[1]s.new %[1]s; sleep 600; fi; %s", s.hold, useSecret),
	}))
}

// runsWhereTheSecretIs runs commands that succeed, that fail, and that no worker can run.
func (s *secretStory) runsWhereTheSecretIs(t *testing.T) {
	t.Helper()
	names := []string{"canary"}
	list := []cluster.TaskFile{{"id": "each", "run": useSecret, "secrets": names, "array": map[string]any{"range": "0-19"}}}
	for i := range 20 {
		list = append(list, cluster.TaskFile{"id": fmt.Sprint("run", i), "run": useSecret, "secrets": names})
	}
	good := clustertest.Submit(t, s.c.Ctl, cluster.JobFile("good", list...))
	bad := clustertest.Submit(t, s.c.Ctl, cluster.JobFile("bad", cluster.TaskFile{
		"id": "bad", "run": useSecret + " >&2; exit 3", "secrets": names, "retry": map[string]any{"max": 1, "initial": "1ms"},
	}))
	missing := clustertest.Submit(t, s.c.Ctl, cluster.JobFile("missing", cluster.TaskFile{"id": "missing", "run": useSecret, "secrets": []string{"canary", "other"}}))

	for _, task := range completed(t, s.c.Ctl, good).Tasks {
		if task.Worker != "w1" || task.Attempt != 1 {
			t.Errorf("task %s: attempt %d on %s, want the first on w1", task.ID, task.Attempt, task.Worker)
		}
	}
	if a := s.c.Run(t.Context(), "result", good+"/run0"); strings.TrimSpace(a.Stdout) != s.digest {
		t.Errorf("the command did not get the secret: %s", a)
	}
	if job, err := s.c.AwaitEnd(t.Context(), bad, guard); err != nil || !strings.Contains(job.Task("bad").Error, s.digest) {
		t.Errorf("the command that fails: %+v, %v", job, err)
	}
	const reason = "no worker that fulfills the other requirements has the secret other"
	if job, err := s.c.Job(t.Context(), missing); err != nil || job.Task("missing").PendingReason != reason {
		t.Errorf("a secret that no worker has: %+v, %v", job, err)
	}
}

// isKilled kills the worker while a command has the secret. Its next process removes the
// copy.
func (s *secretStory) isKilled(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var file string
	clustertest.Must(t, cluster.Until(ctx, "the command has the secret", guard, func(context.Context) error {
		text, err := os.ReadFile(s.hold)
		file = strings.TrimSpace(string(text))
		return err
	}))
	if copied, err := os.ReadFile(file); err != nil || string(copied) != s.canary {
		t.Errorf("the copy has %q: %v", copied, err)
	}
	mark := "SECRETS_MARK=" + s.digest
	pids := cluster.ProcessesWith(mark)
	if len(pids) == 0 {
		t.Error("the command does not run")
	}
	wantHidden(t, append(pids, s.w.Pid()), s.canary)
	for _, pid := range pids {
		if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != s.owner {
			t.Errorf("process %d belongs to %+v, want user %d", pid, info.Sys(), s.owner)
		}
	}
	clustertest.Must(t, s.w.Kill())
	clustertest.Must(t, s.w.Start(ctx))
	// The cluster shows w1 as up until it misses the process that was killed: when w1 is
	// shown as up, the next process may not have removed the copy yet.
	clustertest.Must(t, cluster.Until(ctx, "no copy is left for the killed command", guard, func(context.Context) error {
		_, err := os.Stat(filepath.Dir(file))
		switch {
		case err == nil:
			return fmt.Errorf("%s is left", filepath.Dir(file))
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	}))
	clustertest.Must(t, cluster.Until(ctx, "no process has outlived its worker", guard, func(context.Context) error {
		if left := cluster.ProcessesWith(mark); slices.ContainsFunc(left, func(pid int) bool { return slices.Contains(pids, pid) }) {
			return fmt.Errorf("of the processes %v, %v are left", pids, left)
		}
		return nil
	}))
}
