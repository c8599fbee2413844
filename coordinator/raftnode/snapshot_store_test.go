package raftnode

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

func TestOnlyRemainsOfDeletedSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, files := range map[string][]string{
		"9-100-5":   {"state.bin"},              // deleting it was interrupted: two newer ones are complete
		"10-150-1":  {},                         // same
		"10-200-1":  {"meta.json", "state.bin"}, // its name sorts before 9-…
		"12-300-1":  {"meta.json", "state.bin"},
		"12-400-1":  {"meta.json"}, // the newest: an operator must decide
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
	removed, err := removeUnfinished(dir)
	if err != nil || removed != 3 {
		t.Errorf("removed %d, %v; want 3", removed, err)
	}
	left, err := snapshotNames(dir)
	slices.Sort(left)
	if want := []string{"10-200-1", "12-300-1", "12-400-1"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v; want %v", left, err, want)
	}
}

// The transport sends a snapshot again from its start when a transfer breaks.
func TestAVerifiedSnapshotCanBeReadAgain(t *testing.T) {
	t.Parallel()
	n := snapshotted(t)
	files, err := raft.NewFileSnapshotStore(n.dir, snapshotRetain, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshotStore{FileSnapshotStore: files, dir: filepath.Join(n.dir, snapshotsDir), verified: func() bool { return true }}
	list, err := s.List()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	_, content, err := s.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	seeker, ok := content.(io.Seeker)
	if !ok {
		t.Fatalf("the content is a %T", content)
	}
	first, err := io.ReadAll(content)
	if err != nil || int64(len(first)) != list[0].Size {
		t.Fatalf("read %d bytes, %v; want %d", len(first), err, list[0].Size)
	}
	if _, err := seeker.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	again, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil || !bytes.Equal(again, first) {
		t.Errorf("read %d other bytes, %v", len(again), err)
	}
	rewrite(t, filepath.Join(s.dir, list[0].ID, stateName), func(state []byte) { state[0] ^= 1 })
	if _, _, err := s.Open(list[0].ID); err == nil {
		t.Error("a damaged snapshot is opened to be sent")
	}
}
