package coordinator

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEachFileOfADataDirectoryIsInOnePart(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "n1")
	for i, name := range []string{
		"n1/raft.db", "n1/wal/1.wal", "n1/wal/deep/2.wal", "n1/snapshots/1-2-3/state.bin", "n1/history.db", "n1/audit/audit-1.jsonl",
		"n1/identity.json", "n1/tls/tls.key", "n1/damaged-20260101T000000.000Z/raft.db", "n1.damaged-20260101T000000.000Z/raft.db", "n2/raft.db",
	} {
		path := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 1<<i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := (&replica{cfg: Config{DataDir: dir}}).disk()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"log": 1 + 2 + 4, "snapshots": 8, "history": 16, "audit": 32, "other": 64 + 128, "quarantined": 256 + 512}
	if len(got.Parts) != len(want) {
		t.Errorf("got %v", got.Parts)
	}
	for _, p := range got.Parts {
		if p.Bytes != want[p.Name] {
			t.Errorf("%s: got %d bytes, want %d", p.Name, p.Bytes, want[p.Name])
		}
	}
	if got.Free > got.Size {
		t.Errorf("%d of %d bytes are free", got.Free, got.Size)
	}
}

func TestADataDirectoryThatIsGoneHasNoFiles(t *testing.T) {
	t.Parallel()
	if err := measure(filepath.Join(t.TempDir(), "gone"), func(string, uint64) { t.Error("a file") }); err != nil {
		t.Error(err)
	}
}
