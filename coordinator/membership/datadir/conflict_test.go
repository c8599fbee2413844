package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/logstore"
)

func TestAConflictIsKeptUntilItIsCleared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if c, err := ReadConflict(dir); c != nil || err != nil {
		t.Fatalf("a new directory has conflict %+v, %v", c, err)
	}
	if err := ClearConflict(dir); err != nil {
		t.Fatalf("clearing without a conflict: %v", err)
	}
	want := Conflict{
		Committed: 120, CommittedTerm: 3, Truncated: 101, Leader: "n3", LeaderTerm: 4,
		Found: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
	}
	for _, c := range []Conflict{{Committed: 1}, want} { // the second one replaces the first
		if err := WriteConflict(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := ReadConflict(dir); err != nil || c == nil || *c != want {
		t.Fatalf("read %+v, %v; want %+v", c, err, want)
	}
	if err := ClearConflict(dir); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadConflict(dir); c != nil || err != nil {
		t.Errorf("after clearing: %+v, %v", c, err)
	}
}

// A file that cannot be read must not let Raft run: the conflict would be forgotten.
func TestAnUnreadableConflictIsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ConflictName), []byte(`{"committed": 12`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadConflict(dir)
	if _, damaged := errors.AsType[*logstore.DamageError](err); !damaged {
		t.Errorf("reading half a conflict: %v, want a DamageError", err)
	}
}
