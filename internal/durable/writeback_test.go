package durable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/internal/durable"
)

// Beginning to write a file to the disk changes nothing in it.
func TestALargeFileIsWhatWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "large")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &durable.WritebackWriter{Writer: file, File: file}
	var want []byte
	for i := range 30 {
		block := bytes.Repeat([]byte{byte(i)}, 1_000_003)
		want = append(want, block...)
		if n, err := w.Write(block); n != len(block) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
}
