package raftnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlyRemainsOfDeletedSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, files := range map[string][]string{
		"9-100-5":   {"state.bin"},              // its removal was cut short: two newer ones are whole
		"10-150-1":  {},                         // same
		"10-200-1":  {"meta.json", "state.bin"}, // by name older than 9-…
		"12-300-1":  {"meta.json", "state.bin"},
		"12-400-1":  {"meta.json"}, // the newest: whatever it lacks is for a person to look at
		"2-3-4.tmp": {"meta.json", "state.bin"},
	} {
		folder := filepath.Join(dir, snapshotsDir, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(folder, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	reaped, err := removeUnfinished(dir)
	if err != nil || reaped != 3 {
		t.Errorf("reaped %d, %v; want 3", reaped, err)
	}
	left, err := snapshotNames(dir)
	slices.Sort(left)
	if want := []string{"10-200-1", "12-300-1", "12-400-1"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v; want %v", left, err, want)
	}
}
