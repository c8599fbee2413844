package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// runsCommands runs commands as jobs, as a script does.
func runsCommands(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, tt := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // all of it, without the lines that dtaskctl wrote
	}{
		{"success", []string{"--", "sh", "-c", "echo out; echo err >&2"}, 0, "out\n", "err\n"},
		{"failure", []string{"--", "sh", "-c", "echo out; echo err >&2; exit 3"}, 3, "out\n", "err\n"},
		{"temporary failure", []string{"--", "sh", "-c", "exit 75"}, 75, "", ""},
		{"signal", []string{"--", "sh", "-c", "echo out; kill -KILL $$"}, 137, "out\n", ""},
		{"retries", []string{"--retries", "1", "--", "sh", "-c", "echo attempt $DTASK_ATTEMPT; exit $((2 - DTASK_ATTEMPT))"}, 0, "attempt 1\nattempt 2\n", ""},
		{"timeout", []string{"--task-timeout", "200ms", "--", "sleep", "60"}, 125, "", ""},
		{"no such program", []string{"--", "/no/such/program"}, 125, "", ""},
		{"no shell", []string{"--", "echo", "a  b", "$HOME", "*"}, 0, "a  b $HOME *\n", ""},
		{"environment", []string{"--cwd", "/", "--env", "A=1,2", "--", "sh", "-c", "echo $A; pwd"}, 0, "1,2\n/\n", ""},
		{"unfinished line", []string{"--", "printf", "%s", "no end"}, 0, "no end", ""},
	} {
		a := c.Run(t.Context(), slices.Concat([]string{"run", "--wait"}, tt.args)...)
		if a.Code != tt.code || a.Stdout != tt.stdout || withoutOwnLines(a.Stderr) != tt.stderr {
			t.Errorf("%s: want exit code %d, standard output %q and standard error %q, got %s", tt.name, tt.code, tt.stdout, tt.stderr, a)
		}
	}
	sweeps(t, c)
}

// sweeps runs an array of which two tasks fail: the exit code is that of the first.
func sweeps(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := c.Run(t.Context(), "run", "--wait", "--array", "0-9", "--", "sh", "-c", `echo "item $1"; echo "err $1" >&2`, "sh", "${{ index }}")
	out, errs := strings.Split(strings.TrimSpace(a.Stdout), "\n"), strings.Split(strings.TrimSpace(withoutOwnLines(a.Stderr)), "\n")
	slices.Sort(out)
	slices.Sort(errs)
	want := strings.Fields("0 1 2 3 4 5 6 7 8 9")
	for i, index := range want {
		if len(out) != len(want) || out[i] != "run["+index+"]: item "+index || len(errs) != len(want) || errs[i] != "run["+index+"]: err "+index {
			t.Fatalf("got %s", a)
		}
	}
	if a.Code != 0 {
		t.Errorf("want exit code 0, got %s", a)
	}
	// A failure stops tasks that have not started, so each waits for the other.
	const both = `touch "$1/$2"; until [ -e "$1/3" ] && [ -e "$1/4" ]; do sleep 0.01; done; exit "$2"`
	a = c.Run(t.Context(), "run", "--wait", "--array", "3-4", "--", "sh", "-c", both, "sh", t.TempDir(), "${{ index }}")
	if a.Code != 3 || !strings.Contains(a.Stderr, "run[3] failed: exit code 3") {
		t.Errorf("want exit code 3, got %s", a)
	}
}

// withoutOwnLines removes from standard error what dtaskctl wrote about the job.
func withoutOwnLines(stderr string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "dtaskctl: ") && !strings.HasPrefix(line, "hint: ") && !strings.HasPrefix(line, "job ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// needsOtherJobs runs commands that need other jobs, one of which is not finished.
func needsOtherJobs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	submit := func(args ...string) string {
		a := c.Run(t.Context(), slices.Concat([]string{"run", "-q"}, args)...)
		if a.Code != 0 {
			t.Fatalf("submitting: %s", a)
		}
		return strings.TrimSpace(a.Stdout)
	}
	first := submit("--", "sh", "-c", `until [ -e "$1" ]; do sleep 0.01; done; exit 3`, "sh", gate)
	publish, alert := submit("--needs", first, "--", "echo", "published"), submit("--needs", first+"=failed", "--", "echo", "alerted")
	both := submit("--needs", publish+"=ended", "--needs", alert, "--", "echo", "both ended")
	if a := c.Run(t.Context(), "status", both); !strings.Contains(a.Stdout, "waits for  job "+publish+" when ended, job "+alert) {
		t.Errorf("want a waiting job, got %s", a)
	}
	clustertest.Must(t, os.WriteFile(gate, nil, 0o600))
	for _, tt := range []struct {
		job, state, why string
	}{
		{publish, "failed", "needed job " + first + " failed"},
		{alert, "completed", ""},
		{both, "completed", ""},
	} {
		job, err := c.AwaitEnd(t.Context(), tt.job, guard)
		clustertest.Must(t, err)
		if job.State != tt.state || job.Tasks[0].Error != tt.why {
			t.Errorf("job %s: got %s (%s), want %s (%s)", tt.job, job.State, job.Tasks[0].Error, tt.state, tt.why)
		}
	}
	if a := c.Run(t.Context(), "run", "--wait", "--needs", first, "--", "echo", "never"); a.Code != 125 || !strings.Contains(a.Stderr, "needed job "+first+" failed") {
		t.Errorf("want exit code 125 and the reason, got %s", a)
	}
}

// runsThePipeline runs the example of a pipeline without a job file.
func runsThePipeline(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "/bin/sh", "../../examples/pipeline.sh")
	shell.Env = append(os.Environ(), "HOME=/", "DTASK_ADDR="+strings.Join(c.Ctl.Addrs, ","),
		"PATH="+filepath.Dir(c.Ctl.Programs.Path("dtaskctl"))+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"part 0 passed", "part 7 passed", "released revision 17"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in the output:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "have failed") {
		t.Errorf("the alert ran:\n%s", out)
	}
}
