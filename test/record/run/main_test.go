package main

import (
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/test/record"
)

// runs runs a shell command as a suite and returns what the record has afterwards.
func runs(t *testing.T, target, script string) (failed string, lines []record.Run) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	failed, err := run(t.Context(), path, &record.Run{Suite: "chaos"}, target, []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	if lines, err = record.Read(path); err != nil {
		t.Fatal(err)
	}
	if rest, _ := filepath.Glob(path + ".*"); len(rest) > 0 { // a valid pattern
		t.Errorf("got remaining files %v", rest)
	}
	return failed, lines
}

func TestARunThatEndsWithoutALineIsRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"a panic":       {`echo "=== RUN   TestKills"; echo "panic: boom"; echo "goroutine 1 [running]:"; exit 2`, "TestKills: panic: boom"},
		"a timeout":     {`echo "=== RUN   TestKills"; echo "panic: test timed out after 1s"; exit 1`, "TestKills: panic: test timed out after 1s"},
		"a kill":        {`echo "=== RUN   TestKills"; kill -KILL $$`, "TestKills: signal: killed"},
		"early failure": {`exit 3`, "sh -c exit 3: exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed, lines := runs(t, "", c.script)
			if failed == "" {
				t.Error("got a success")
			}
			if len(lines) != 1 || lines[0].Failed != c.want || lines[0].Suite != "chaos" || lines[0].Core == "" {
				t.Errorf("got %+v, want one line that failed with %q", lines, c.want)
			}
		})
	}
}

func TestASuitesOwnLinesAreTheOnlyOnes(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"success":                   `true`,
		"a failure that it records": `rm "$` + record.StartedEnv + `"; exit 1`, // as record.AppendIfAsked does
		"code that doesn't compile": `echo "FAIL	./test/chaos [build failed]"; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, lines := runs(t, "", script); len(lines) > 0 {
				t.Errorf("got %+v, want no lines", lines)
			}
		})
	}
}

func TestTheTimeOfAFuzzTargetIsRecorded(t *testing.T) {
	t.Parallel()
	failed, lines := runs(t, "FuzzRead", `echo "fuzz: elapsed: 1m3s, execs: 3432 (1711/sec), new interesting: 87 (total: 96)"`)
	if failed != "" || len(lines) != 1 || lines[0].FuzzSeconds["FuzzRead"] != 63 || lines[0].Commit == "" || lines[0].Core == "" {
		t.Errorf("got %q, %+v", failed, lines)
	}
	failed, lines = runs(t, "FuzzRead", `exit 1`)
	if failed == "" || len(lines) != 1 || lines[0].Failed != "FuzzRead: exit status 1" || len(lines[0].FuzzSeconds) > 0 {
		t.Errorf("a failing target: got %q, %+v", failed, lines)
	}
}

func TestASignalEndsTheCommandAndIsRecorded(t *testing.T) { // not parallel: the signal is for the whole process
	failed, lines := runs(t, "", `echo "=== RUN   TestSoak"; kill -TERM $PPID; exec sleep 60`)
	if failed != "terminated" || len(lines) != 1 || lines[0].Failed != "TestSoak: terminated" {
		t.Errorf("got %q, %+v", failed, lines)
	}
}
