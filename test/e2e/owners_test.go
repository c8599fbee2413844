package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Two people and an admin use one worker: the commands of each run under a user of their
// own, whatever owner their job files name. Without root, the worker refuses to start.
func TestCommandsRunUnderTheUserOfTheIdentityThatSubmittedThem(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSecured(t, 1)
	file := filepath.Join(t.TempDir(), "run-as")
	clustertest.Must(t, os.WriteFile(file, []byte("alice 54321:54322\nbob 54331:54332 default\n"), 0o600))
	work := s.data("work-w1")
	clustertest.Must(t, errors.Join(os.Chmod(filepath.Dir(s.dir), 0o711), os.Chmod(s.dir, 0o711)))
	w := s.process("w1", "dtask-worker", "--join", s.worker, "--name", "w1", "--slots", "4", "--work-dir", work, "--run-as", "owner", "--run-as-map", file)
	if os.Geteuid() != 0 {
		if code, err := w.Wait(ctx); code != 1 || err != nil || !w.LogHas("start the worker as root") {
			t.Errorf("exit code %d, %v", code, err)
		}
		return
	}
	s.await(w, "session opened")

	for name, want := range map[string]string{"alice": "54321 54322", "bob": "54331 54332"} {
		ctl, err := s.As(ctx, s.dir, name, "submitter", "default")
		clustertest.Must(t, err)
		id := clustertest.Submit(t, ctl, "job:\n  name: mine\n  owner: root\n  tasks:\n  - {id: a, run: 'echo $(id -u) $(id -G)'}\n")
		completed(t, ctl, id)
		if a := ctl.Run(ctx, "result", id+"/a"); strings.TrimSpace(a.Stdout) != want {
			t.Errorf("the command of %s ran as %s, want %s", name, a, want)
		}
	}
	id := clustertest.Submit(t, s.Ctl, cluster.JobFile("unmapped", cluster.TaskFile{"id": "a", "run": "id", "retry": map[string]any{"max": 3}}))
	want := fmt.Sprintf(`owner "me" in namespace default has no line in %s`, file)
	if job, err := s.AwaitEnd(ctx, id, guard); err != nil || job.Task("a").Attempt != 1 || !strings.Contains(job.Task("a").Error, want) {
		t.Errorf("the admin has no line: %+v, %v, want %q after one attempt", job, err, want)
	}
}

// There, any caller can write any owner into a job file.
func TestAWorkerOfAClusterWithoutIdentitiesRefusesToRunCommandsOfOwners(t *testing.T) {
	t.Parallel()
	c := clustertest.New(t, cluster.Config{Workers: 1, WorkerFlags: []string{"--run-as", "owner", "--run-as-map", "/etc/run-as"}})
	w := c.Worker("w1")
	clustertest.Must(t, w.Start(t.Context()))
	if code, err := w.Wait(t.Context()); code != 2 || err != nil || !w.LogHas("only a cluster with identities proves who owns a job") {
		t.Error(errors.Join(fmt.Errorf("exit code %d", code), err))
	}
}
