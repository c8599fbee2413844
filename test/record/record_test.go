package record_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dtask/dtask/test/record"
)

func TestRunsAreReadBackAndAddedUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	for _, r := range []record.Run{
		{Suite: "simulate", Seeds: 3, Events: 10, Mutants: []string{"a"}, Faults: map[string]int{"F1": 1}},
		{Suite: "chaos", LeaderKills: 2, Mutants: []string{"a"}, Faults: map[string]int{"F1": 2, "F9": 1}, Handovers: 5, Lost: 1},
		{Suite: "chaos", Handovers: 7},
		{Suite: "chaos", Handovers: 9, Failed: "TestNemesis"},
	} {
		if err := record.Append(t.Context(), path, &r); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := record.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.Commit == "" || r.At.IsZero() {
			t.Errorf("run without commit or time: %+v", r)
		}
	}
	want := record.Run{
		Seeds: 3, Events: 10, LeaderKills: 2, Handovers: 12, Lost: 1, Mutants: []string{"a"},
		Faults: map[string]int{"F1": 3, "F9": 1},
	}
	if diff := cmp.Diff(want, record.Total(runs), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("total differs (-want +got):\n%s", diff)
	}
}

// Lines of runs before a figure was recorded don't have it.
func TestALineWithoutAFigureCounts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	line := `{"suite":"chaos","commit":"6cd87a8","at":"2026-11-25T00:28:48Z","seconds":1,"leader_kills":3,"lost":0,"duplicated":0,"diverged":0}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := record.Append(t.Context(), path, &record.Run{Suite: "chaos", Commit: "x", Core: "y", Handovers: 4}); err != nil {
		t.Fatal(err)
	}
	runs, err := record.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := record.Total(runs); len(runs) != 2 || got.Handovers != 4 || got.LeaderKills != 3 {
		t.Errorf("got %d runs, %d handovers and %d leaders killed, want 2, 4 and 3", len(runs), got.Handovers, got.LeaderKills)
	}
}

func TestAMissingRecordIsEmpty(t *testing.T) {
	t.Parallel()
	runs, err := record.Read(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(runs) != 0 {
		t.Errorf("got %v, %v", runs, err)
	}
}

func TestOfAFailedRunOnlyWhatMustBeZeroCounts(t *testing.T) {
	t.Parallel()
	runs := []record.Run{{LeaderKills: 5}, {LeaderKills: 2, Lost: 1, Failed: "TestSmoke"}}
	if got := record.Total(runs); got.LeaderKills != 5 || got.Lost != 1 {
		t.Errorf("got %d leaders killed and %d lost, want 5 and 1", got.LeaderKills, got.Lost)
	}
}
