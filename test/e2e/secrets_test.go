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
	"strings"
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
			clustertest.Must(t, err)
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
	ctx := t.Context()
	canary := "canary-" + rand.Text()
	sum := sha256.Sum256([]byte(canary))
	digest := hex.EncodeToString(sum[:])
	secrets := filepath.Join(t.TempDir(), "secrets")
	clustertest.Must(t, os.Mkdir(secrets, 0o700))
	clustertest.Must(t, os.WriteFile(filepath.Join(secrets, "canary"), []byte(canary), 0o600))

	c := clustertest.New(t, cluster.Config{Workers: 2, Slots: 8})
	w := c.Worker("w1") // w2 has no secrets
	w.AddArgs("--secrets-dir", secrets)
	clustertest.Must(t, c.Start(ctx))

	const use = "sha256sum < $DTASK_SECRET_CANARY_FILE | cut -d' ' -f1"
	names := []string{"canary"}
	hold := filepath.Join(c.Dir, "held")
	once := map[string]any{"max": 1, "initial": "1ms"}
	mark := "SECRETS_MARK=" + digest
	held := clustertest.Submit(t, c.Ctl, cluster.JobFile("held", cluster.TaskFile{
		"id": "held", "secrets": names, "env": map[string]string{"SECRETS_MARK": digest},
		"run": fmt.Sprintf("if [ $DTASK_ATTEMPT = 1 ]; then echo $DTASK_SECRET_CANARY_FILE > %s.new; mv %[1]s.new %[1]s; sleep 600; fi; %s", hold, use),
	}))
	list := []cluster.TaskFile{{"id": "each", "run": use, "secrets": names, "array": map[string]any{"range": "0-19"}}}
	for i := range 20 {
		list = append(list, cluster.TaskFile{"id": fmt.Sprint("run", i), "run": use, "secrets": names})
	}
	good := clustertest.Submit(t, c.Ctl, cluster.JobFile("good", list...))
	bad := clustertest.Submit(t, c.Ctl, cluster.JobFile("bad", cluster.TaskFile{"id": "bad", "run": use + " >&2; exit 3", "secrets": names, "retry": once}))
	missing := clustertest.Submit(t, c.Ctl, cluster.JobFile("missing", cluster.TaskFile{"id": "missing", "run": use, "secrets": []string{"canary", "other"}}))

	for _, task := range completed(t, c.Ctl, good).Tasks {
		if task.Worker != "w1" || task.Attempt != 1 {
			t.Errorf("task %s: attempt %d on %s, want the first on w1", task.ID, task.Attempt, task.Worker)
		}
	}
	if a := c.Run(ctx, "result", good+"/run0"); strings.TrimSpace(a.Stdout) != digest {
		t.Errorf("the command did not get the secret: %s", a)
	}
	if job, err := c.AwaitEnd(ctx, bad, guard); err != nil || !strings.Contains(job.Task("bad").Error, digest) {
		t.Errorf("the command that fails: %+v, %v", job, err)
	}
	if job, err := c.Job(ctx, missing); err != nil || job.Task("missing").PendingReason != "no worker that fulfills the other requirements has the secret other" {
		t.Errorf("a secret that no worker has: %+v, %v", job, err)
	}

	// The worker is killed while a command has the secret. Its next process removes the copy.
	var file string
	clustertest.Must(t, cluster.Until(ctx, "the command has the secret", guard, func(context.Context) error {
		text, err := os.ReadFile(hold)
		file = strings.TrimSpace(string(text))
		return err
	}))
	if copied, err := os.ReadFile(file); err != nil || string(copied) != canary {
		t.Errorf("the copy has %q: %v", copied, err)
	}
	pids := cluster.ProcessesWith(mark)
	if len(pids) == 0 {
		t.Error("the command does not run")
	}
	wantHidden(t, append(pids, w.Pid()), canary)
	clustertest.Must(t, w.Kill())
	clustertest.Must(t, w.Start(ctx))
	clustertest.Must(t, c.AwaitWorker(ctx, "w1", "up"))
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy for a killed command: %v", err)
	}
	completed(t, c.Ctl, held)
	wantNowhere(t, c.Dir, canary)
	if !w.LogHas("worker started", "secrets=[canary]") {
		t.Error("the worker does not log the names of its secrets")
	}

	dir, err := os.Readlink(filepath.Join(w.Dir, "secrets"))
	clustertest.Must(t, err)
	clustertest.Must(t, w.Terminate())
	_, err = w.Wait(ctx)
	clustertest.Must(t, err)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a worker that has ended: %v", err)
	}
}
