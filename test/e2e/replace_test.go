package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A machine is lost under load and replaced by one command, while the leader is killed. The
// old coordinator is refused when it returns, and no task fails.
func TestALostCoordinatorIsReplacedByOneCommand(t *testing.T) {
	t.Parallel()
	s := newSecured(t, 3)
	s.addWorker("w1")
	job := filepath.Join(s.dir, "job.yaml")
	tasks := make([]cluster.TaskFile, 200)
	for i := range tasks {
		tasks[i] = cluster.Builtin(fmt.Sprintf("t%d", i), "sleep", "50ms")
	}
	clustertest.Must(t, os.WriteFile(job, []byte(cluster.JobFile("load", tasks...)), 0o600))
	leader := s.leader()
	lost := (leader + 1) % 3
	old := s.nodes[lost].Name
	join := func() string {
		a := s.Run(t.Context(), "join-token", "create", "coordinator")
		clustertest.Must(t, a.Err())
		return strings.TrimSpace(a.Stdout)
	}
	try := func(code int, text, replace string) {
		t.Helper()
		addr, err := cluster.FreePort(t.Context())
		clustertest.Must(t, err)
		out, err := exec.CommandContext(t.Context(), s.Programs.Path("dtaskd"), "join", join(), "--replace", replace, "--advertise", addr, "--http", "", "--data-dir", s.data("refused")).CombinedOutput()
		failed, _ := errors.AsType[*exec.ExitError](err)
		if failed == nil || failed.ExitCode() != code || !strings.Contains(string(out), text) {
			t.Errorf("--replace %s: got %v, %s; want exit code %d and %q", replace, err, out, code, text)
		}
	}
	try(6, "runs at", old)
	try(6, "not a member", "n9")
	submitted := s.Run(t.Context(), "submit", job, "-q")
	clustertest.Must(t, submitted.Err())
	clustertest.Must(t, s.nodes[lost].Kill())
	s.coordinator("join", join(), "--replace", old)
	clustertest.Must(t, s.nodes[leader].Kill())
	s.restart(leader)
	s.await(s.nodes[3], "has a vote")
	s.restart(lost)
	s.await(s.nodes[lost], "was removed from the cluster")
	try(6, "already replaced by n4", old)
	clustertest.Must(t, s.Run(t.Context(), "wait", strings.TrimSpace(submitted.Stdout)).Err())
	clustertest.Must(t, cluster.Until(t.Context(), "three voters", guard, func(ctx context.Context) error {
		status, err := s.Status(ctx)
		voters := 0
		for _, m := range status.Members {
			if m.ID == old {
				err = errors.Join(err, errors.New(old+" is a member"))
			}
			if m.Voter && m.State != "unreachable" {
				voters++
			}
		}
		if voters != 3 {
			err = errors.Join(err, fmt.Errorf("%d voters", voters))
		}
		return err
	}))
}
