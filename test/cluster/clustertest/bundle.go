package clustertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// DebugFiles returns the files of a debug bundle, by their paths in it, and the contents of
// those that are compressed.
func DebugFiles(t *testing.T, path string) map[string][]byte {
	t.Helper()
	bundle, err := os.ReadFile(path)
	Must(t, err)
	files := make(map[string][]byte)
	for archive := tar.NewReader(bytes.NewReader(unpack(t, bundle))); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Must(t, err)
		data, err := io.ReadAll(archive)
		Must(t, err)
		if strings.HasSuffix(head.Name, ".gz") {
			data = unpack(t, data)
		}
		files[head.Name] = data
	}
}

func unpack(t *testing.T, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	Must(t, err)
	data, err := io.ReadAll(r)
	Must(t, err)
	return data
}
