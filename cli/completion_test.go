package cli

import (
	"net"
	"strings"
	"testing"
)

// silent returns the address of a port that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// The test itself hangs if a completion does.
func TestACompletionEndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	addr := silent(t)
	for _, args := range [][]string{
		{"status", "4"}, {"status", "@n"}, {"status", "42/f"}, {"worker", "drain", "w"}, {"list", "--name", "x"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			a, stdout, stderr := setup(t, map[string]string{"DTASK_ADDR": addr})
			if code := run(t.Context(), append([]string{"__complete"}, args...), a); code != exitOK || stdout.String() != ":36\n" {
				t.Errorf("got exit code %d and %q", code, stdout)
			}
			if strings.Contains(stderr.String(), "dtaskctl:") {
				t.Errorf("got the error %q", stderr)
			}
		})
	}
}

func TestACompletionHasAsManyValuesAsAShellCanShow(t *testing.T) {
	t.Parallel()
	leader := newFakeLeader()
	leader.runningJobs(500)
	addr, done, err := leader.serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	a, stdout, _ := setup(t, map[string]string{"DTASK_ADDR": addr})
	a.patience = 30
	if code := run(t.Context(), []string{"__complete", "cancel", ""}, a); code != exitOK {
		t.Fatalf("got exit code %d", code)
	}
	if got := strings.Count(stdout.String(), "\n"); got != maxCompletions+1 { // the last line is for the shell
		t.Errorf("got %d lines, want %d", got, maxCompletions+1)
	}
}

func TestEveryCommandThatTakesJobsCompletesThem(t *testing.T) {
	t.Parallel()
	all := commands(t)
	for path, cmd := range all {
		if _, complete := jobArgs[path]; complete != strings.Contains(cmd.Use, "JOB") {
			t.Errorf("%s: usage is %q, listed in jobArgs: %t", path, cmd.Use, complete)
		}
		if jobArgs[path].tasks != strings.Contains(cmd.Use, "TASK") || jobArgs[path].many != strings.Contains(cmd.Use, "...") && !strings.Contains(cmd.Use, "FILE") && !strings.Contains(cmd.Use, "COMMAND") {
			t.Errorf("%s: %+v does not fit %q", path, jobArgs[path], cmd.Use)
		}
	}
	for path := range jobArgs {
		if all[path] == nil {
			t.Errorf("unknown command %q", path)
		}
	}
}
