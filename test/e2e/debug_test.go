package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// canaries are texts that must be in no debug bundle, by what they are.
type canaries map[string]string

// newCanary makes one.
func (c canaries) newCanary(what string) string {
	c[what] = "canary-" + rand.Text()
	return c[what]
}

// addFiles adds the contents of files of a cluster that are secret: keys, tokens and join
// strings.
func (c canaries) addFiles(t *testing.T, dir string) {
	t.Helper()
	clustertest.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has its final name meanwhile
			return nil
		case err != nil:
			return err
		case strings.HasSuffix(path, ".key") || filepath.Base(path) == "worker.pem":
			// The first line of the key's text only names the curve.
			_, body, found := strings.Cut(string(text), "PRIVATE KEY-----\n")
			if lines := strings.Split(body, "\n"); found && len(lines) > 1 {
				c[path] = lines[1]
			}
		case strings.HasSuffix(path, ".token") || strings.HasSuffix(path, ".join"):
			c[path] = strings.TrimSpace(string(text))[20:50]
		}
		return nil
	}))
}

// wantNone checks the files of a bundle.
func (c canaries) wantNone(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		for what, text := range c {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("%s contains %s", name, what)
			}
		}
	}
}

// A debug bundle has what each coordinator knows, which ones did not answer, and no secret.
// It is also made when only one of three coordinators runs, without a leader. Only an admin
// gets it.
func TestADebugBundleHasNoSecret(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hidden := make(canaries)
	secrets := filepath.Join(t.TempDir(), "secrets")
	clustertest.Must(t, os.Mkdir(secrets, 0o700))
	clustertest.Must(t, os.WriteFile(filepath.Join(secrets, "canary"), []byte(hidden.newCanary("a secret of the worker")), 0o600))
	c := clustertest.Start(t, cluster.Config{
		TLS: true, Workers: 1, WorkerFlags: []string{"--secrets-dir", secrets},
		CoordinatorFlags: []string{
			"--log-level", "debug", "--dead-letter-webhook", "https://hooks.invalid/" +
				hidden.newCanary("the path of a webhook") + "?token=" + hidden.newCanary("the token of a webhook"),
		},
	})
	runsWithSecrets(t, c, hidden)
	hidden.addFiles(t, c.Dir)
	if len(hidden) < 12 {
		t.Fatalf("only %d canaries", len(hidden))
	}

	reader := filepath.Join(c.Dir, "reader.token")
	clustertest.Must(t, c.Run(ctx, "token", "create", "--role", "operator", "--name", "op", "--out", reader).Err())
	hidden.addFiles(t, c.Dir)
	wantRefused(t, c.Run(ctx, "debug", "--token-file", reader, "--out", filepath.Join(c.Dir, "refused.tar.gz")), 6, "may not call Debug")

	leader := clustertest.Leader(t, c)
	followers := c.Followers(leader)
	clustertest.Must(t, followers[0].Kill())
	files := savesDebug(t, c, "first", "5s", followers[0].Name+" did not answer")
	hidden.wantNone(t, files)
	for _, n := range []string{leader.Name, followers[1].Name} {
		for name, text := range map[string]string{
			"status.json": `"server_id": "` + n + `"`, "settings.json": `"dead-letter-webhook": "https://hooks.invalid"`, "metrics.txt": "dtask_build_info{",
			"goroutines.txt": "goroutine ", "heap.pb.gz": "", "cpu.pb.gz": "", "log.txt": "msg=",
		} {
			if data := files["dtask-debug/"+n+"/"+name]; len(data) == 0 || !bytes.Contains(data, []byte(text)) {
				t.Errorf("%s/%s: %d bytes without %s", n, name, len(data), text)
			}
		}
	}

	clustertest.Must(t, leader.Kill())
	clustertest.Must(t, cluster.Until(ctx, "no coordinator leads", guard, func(ctx context.Context) error {
		status, err := c.Status(ctx)
		if err == nil && status.Leader != "" {
			err = errors.New(status.Leader + " leads")
		}
		return err
	}))
	files = savesDebug(t, c, "leaderless", "0s", leader.Name+" did not answer")
	hidden.wantNone(t, files)
	if len(files["dtask-debug/"+followers[1].Name+"/status.json"]) == 0 {
		t.Errorf("the last coordinator has sent nothing")
	}
}

// savesDebug saves a bundle and returns its files.
func savesDebug(t *testing.T, c *cluster.Cluster, name, profile, says string) map[string][]byte {
	t.Helper()
	path := filepath.Join(c.Dir, name+".tar.gz")
	a := c.Run(t.Context(), "debug", "--out", path, "--profile", profile)
	clustertest.Must(t, a.Err())
	if !strings.Contains(a.Stdout, says) {
		t.Errorf("without %q: %s", says, a)
	}
	info, err := os.Stat(path)
	clustertest.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %s", path, info.Mode())
	}
	return clustertest.DebugFiles(t, path)
}

// runsWithSecrets runs jobs with canaries in all of their texts that are not names.
func runsWithSecrets(t *testing.T, c *cluster.Cluster, hidden canaries) {
	t.Helper()
	good := clustertest.Submit(t, c.Ctl, cluster.JobFile("good",
		cluster.Builtin("echo", "echo", hidden.newCanary("a payload and result")),
		cluster.TaskFile{
			"id": "run", "secrets": []string{"canary"}, "env": map[string]string{"CANARY": hidden.newCanary("a variable")},
			"run": "cat $DTASK_SECRET_CANARY_FILE > /dev/null; echo " + hidden.newCanary("a command and its output"),
		}))
	completed(t, c.Ctl, good)
	bad := clustertest.Submit(t, c.Ctl, cluster.JobFileWith(map[string]any{"name": "bad", "webhook": "https://hooks.invalid/" + hidden.newCanary("the webhook of a job")},
		cluster.TaskFile{"id": "bad", "run": "echo " + hidden.newCanary("the output of a failure") + " >&2; exit 3", "retry": map[string]any{"max": 0}}))
	if a := c.Run(t.Context(), "wait", bad); a.Code != 1 {
		t.Errorf("a job that fails: %s", a)
	}
}
