package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// programDir is where the units expect the programs.
const programDir = "/usr/local/bin"

// units are copies of the units of deploy/systemd by file name, with programs that exist.
func units(t *testing.T) (dir string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing: install systemd")
	}
	dir = t.TempDir()
	for _, name := range []string{"dtaskd", "dtask-worker"} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\n", 0o700)
	}
	for from, to := range map[string]string{
		"dtaskd.service": "dtaskd.service", "dtask-worker@.service": "dtask-worker@w1.service",
	} {
		text := read(t, filepath.Join("deploy", "systemd", from))
		write(t, filepath.Join(dir, to), strings.ReplaceAll(text, programDir, dir), 0o600)
	}
	return dir
}

func TestSystemdAcceptsTheUnitsWithoutAWarning(t *testing.T) {
	t.Parallel()
	dir := units(t)
	for _, name := range []string{"dtaskd.service", "dtask-worker@w1.service"} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", filepath.Join(dir, name)).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// exposure matches the result of systemd-analyze security.
var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func TestTheUnitsAreHardened(t *testing.T) {
	t.Parallel()
	dir := units(t)
	runAs := strings.ReplaceAll(read(t, "deploy/systemd/dtask-worker@.service")+read(t, "deploy/systemd/run-as.conf"), programDir, dir)
	write(t, filepath.Join(dir, "run-as.service"), strings.ReplaceAll(runAs, "%i", "w1"), 0o600)
	for name, limit := range map[string]float64{"dtaskd.service": 1.5, "dtask-worker@w1.service": 4, "run-as.service": 4} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", filepath.Join(dir, name)).CombinedOutput()
		m := exposure.FindSubmatch(out)
		if err != nil || m == nil {
			t.Errorf("%s: %v\n%s", name, err, out)
			continue
		}
		score, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil || score > limit {
			t.Errorf("%s: exposure %s, want at most %v\n%s", name, m[1], limit, out)
		}
		t.Logf("%s: exposure %s", name, m[1])
	}
}

// setting returns the values of a setting of a unit.
func setting(unit, name string) (values []string) {
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

func TestTheUnitsFitThePrograms(t *testing.T) {
	t.Parallel()
	coordinator, worker := read(t, "deploy/systemd/dtaskd.service"), read(t, "deploy/systemd/dtask-worker@.service")
	for _, unit := range []string{coordinator, worker} {
		// A program that panics exits with 2, and must be restarted.
		for _, codes := range setting(unit, "RestartPreventExitStatus") {
			for code := range strings.FieldsSeq(codes) {
				if code == "2" {
					t.Error("a program that panics is not restarted")
				}
			}
		}
	}
	if got := setting(coordinator, "Type"); len(got) != 1 || got[0] != "notify" {
		t.Errorf("Type=%v: dtaskd reports its start", got)
	}
	if got := setting(coordinator, "ExecReload"); got != nil {
		t.Errorf("ExecReload=%v: SIGHUP stops dtaskd, which reads changed certificates by itself", got)
	}
	drain := ""
	for _, line := range setting(worker, "Environment") {
		for pair := range strings.FieldsSeq(line) {
			if value, ok := strings.CutPrefix(pair, "DTASK_DRAIN_TIMEOUT="); ok {
				drain = value
			}
		}
	}
	drained, err := time.ParseDuration(drain)
	stop, errStop := strconv.Atoi(strings.Join(setting(worker, "TimeoutStopSec"), ""))
	if err != nil || errStop != nil || time.Duration(stop)*time.Second < drained+15*time.Second {
		t.Errorf("TimeoutStopSec=%d s must exceed DTASK_DRAIN_TIMEOUT=%s", stop, drain)
	}
}

// read returns a file of this repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
