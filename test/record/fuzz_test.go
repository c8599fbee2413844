package record_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dtask/dtask/test/record"
)

// FuzzRead reads any text as a record, and what it can read it can write.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"suite":"cluster","commit":"abc","at":"2026-01-02T03:04:05Z","seconds":1.5,"faults":{"F1":2},"lost":0,"duplicated":0,"diverged":0}` + "\n"))
	f.Add([]byte("{}\n\n"))
	f.Add([]byte(`{"suite":"x","seed":18446744073709551615,"seeds":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		path, copied := filepath.Join(dir, "runs.jsonl"), filepath.Join(dir, "again.jsonl")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		runs, err := record.Read(path)
		if err != nil {
			return
		}
		record.Total(runs)
		record.Next(runs, "cluster")
		for i := range runs {
			runs[i].Commit, runs[i].Core = "x", "y" // empty ones would be looked up
			if record.Append(t.Context(), copied, &runs[i]) != nil {
				return // a time that cannot be written
			}
		}
		again, err := record.Read(copied)
		for i := range again {
			if runs[i].At.IsZero() {
				runs[i].At = again[i].At // filled in
			}
		}
		if err != nil || !cmp.Equal(runs, again, cmpopts.EquateEmpty()) {
			t.Errorf("what was read is not what is written: %v\n%s", err, cmp.Diff(runs, again, cmpopts.EquateEmpty()))
		}
	})
}
