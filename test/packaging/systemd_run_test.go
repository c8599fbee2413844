package packaging

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// systemdVariable runs the test that starts a systemd of its own.
const systemdVariable = "DTASK_SYSTEMD"

// systemdCgroups is the hierarchy in which that systemd counts the processes of units. It is
// the only one that it sees, so that it changes no limits of this machine.
const systemdCgroups = "/sys/fs/cgroup/systemd"

// systemdLimit is a guard against hanging.
const systemdLimit = 5 * time.Minute

// The units start, restart and stop the programs as docs/deploy.md says. systemd is the first
// process of namespaces, because hardly any machine that runs tests was started by systemd, or
// may be changed by them.
func TestTheUnitsRunThePrograms(t *testing.T) {
	if os.Getenv(systemdVariable) == "" {
		t.Skipf("set %s=1, as root, to start systemd in namespaces of its own", systemdVariable)
	}
	if _, err := os.Stat(filepath.Join(systemdCgroups, "cgroup.procs")); err != nil {
		t.Skipf("the kernel has no cgroups for systemd alone: %v", err)
	}
	dir, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"bin", "units", "files"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"dtaskd.service", "dtask-worker@.service"} {
		write(t, filepath.Join(dir, "units", name), read(t, filepath.Join("deploy", "systemd", name)), 0o600)
	}
	for _, name := range []string{"machine.sh", "check.sh"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join("test", "packaging", "testdata", "systemd", name)), 0o600)
	}
	shell(t, root(t), "CGO_ENABLED=0 go build -o "+filepath.Join(dir, "bin")+" ./cmd/dtaskd ./cmd/dtask-worker ./cmd/dtaskctl")

	group := filepath.Join(systemdCgroups, filepath.Base(filepath.Dir(dir)))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroups(group); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), systemdLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", `echo $$ >"$0/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup bash "$1/machine.sh" "$1" "$2"`, group, dir, out)
	said, err := cmd.CombinedOutput()
	printed, readErr := os.ReadFile(filepath.Join(out, "printed"))
	if err != nil || readErr != nil || !strings.Contains(string(printed), "passed: all stop without an error") {
		t.Errorf("%v, %v\n%s\n%s", err, readErr, said, printed)
	}
	t.Logf("%s", printed)
}

// removeCgroups removes a group and those below it, once their processes have ended.
func removeCgroups(group string) error {
	var all []string
	err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for _, path := range slices.Backward(all) {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
