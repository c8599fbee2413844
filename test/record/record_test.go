package record_test

import (
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
		{Suite: "chaos", LeaderKills: 2, Mutants: []string{"a"}, Faults: map[string]int{"F1": 2, "F9": 1}, Lost: 1},
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
		Seeds: 3, Events: 10, LeaderKills: 2, Lost: 1, Mutants: []string{"a"},
		Faults: map[string]int{"F1": 3, "F9": 1},
	}
	if diff := cmp.Diff(want, record.Total(runs), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("total differs (-want +got):\n%s", diff)
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
