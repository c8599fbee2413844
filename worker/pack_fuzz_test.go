package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzUnpack: no archive creates files outside the directory.
func FuzzUnpack(f *testing.F) {
	dir := f.TempDir()
	for name, text := range map[string]string{"a": "1", "b": "two"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := pack(&b, dir, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{3, 0})
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 64<<10 {
			return // don't fill the disk
		}
		parent := t.TempDir()
		_ = unpack(bytes.NewReader(archive), filepath.Join(parent, "in"), nil) // most archives are invalid
		names, err := os.ReadDir(parent)
		if err != nil || len(names) != 1 || names[0].Name() != "in" {
			t.Fatalf("outside the directory: got %v, %v", names, err)
		}
	})
}
