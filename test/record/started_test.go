package record_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/test/record"
)

// begin starts a run beside a new record.
func begin(t *testing.T) (path string, s *record.Started) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "runs.jsonl")
	s, err := record.Start(t.Context(), path, record.Run{Suite: "soak", Commit: "x", Core: "y"})
	if err != nil {
		t.Fatal(err)
	}
	return path, s
}

func read(t *testing.T, path string) []record.Run {
	t.Helper()
	runs, err := record.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestARunWhoseProcessIsGoneIsRecordedOnce(t *testing.T) {
	t.Parallel()
	path, s := begin(t)
	if err := record.AppendAbandoned(t.Context(), path); err != nil || len(read(t, path)) > 0 {
		t.Errorf("while it runs: got %v, %+v", err, read(t, path))
	}
	text, err := os.ReadFile(s.Path)
	if err != nil || !json.Valid(text) {
		t.Fatalf("got %q, %v", text, err)
	}
	// What a killed process leaves behind: the file without its lock.
	if err := os.WriteFile(path+".started-1", text, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := record.AppendAbandoned(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	if runs := read(t, path); len(runs) != 1 || runs[0].Suite != "soak" || runs[0].Failed != "ended without a result" || runs[0].Core != "y" {
		t.Errorf("got %+v", runs)
	}
	if err := s.End(t.Context(), ""); err != nil || len(read(t, path)) != 1 {
		t.Errorf("after a success: got %v, %+v", err, read(t, path))
	}
}

func TestAFailureThatTheSuiteRecordsIsNotRecordedAgain(t *testing.T) { // not parallel: it sets variables
	path, s := begin(t)
	t.Setenv(record.Env, path)
	t.Setenv(record.StartedEnv, s.Path)
	for _, r := range []record.Run{{Suite: "cluster"}, {Suite: "cluster", Failed: "TestAClusterLosesNothing"}} {
		if _, err := os.Stat(s.Path); err != nil {
			t.Errorf("before a failure was recorded: %v", err)
		}
		if err := record.AppendIfAsked(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(t.Context(), "exit status 1"); err != nil {
		t.Fatal(err)
	}
	if runs := read(t, path); len(runs) != 2 {
		t.Errorf("got %+v, want the suite's own two lines", runs)
	}
}
