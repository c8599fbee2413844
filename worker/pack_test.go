package worker

import (
	"archive/tar"
	"bytes"
	"compress/flate"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Unix(1000, 0), time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
}

func packed(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := pack(&b, dir, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAnArchiveRestoresItsDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b", "deep", "x"), "1")
	writeFile(t, filepath.Join(dir, "a"), "two")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	archive := packed(t, dir)
	if !bytes.Equal(archive, packed(t, dir)) {
		t.Error("got two different archives of one directory")
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := unpack(bytes.NewReader(archive), out, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"b/deep/x": "1", "a": "two"} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
	info, err := os.Stat(filepath.Join(out, "a"))
	if err != nil || info.Mode().Perm() != 0o700 || info.ModTime().Unix() != 1000 {
		t.Errorf("a: got %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(out, "empty")); err != nil || !info.IsDir() {
		t.Errorf("empty directory: got %v, %v", info, err)
	}
}

func TestOnlyFilesAndDirectoriesArePacked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := pack(new(bytes.Buffer), dir, nil); err == nil {
		t.Error("packing a link: got no error")
	}
	if err := pack(new(bytes.Buffer), filepath.Join(dir, "none"), nil); err == nil {
		t.Error("packing a missing directory: got no error")
	}
}

func TestAnArchiveCannotLeaveItsDirectory(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*tar.Header{
		"upwards":     {Typeflag: tar.TypeReg, Name: "../out"},
		"deep":        {Typeflag: tar.TypeReg, Name: "a/../../out"},
		"absolute":    {Typeflag: tar.TypeReg, Name: "/tmp/out"},
		"link":        {Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/tmp"},
		"hard link":   {Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"},
		"directory":   {Typeflag: tar.TypeDir, Name: "../d/"},
		"device":      {Typeflag: tar.TypeChar, Name: "null"},
		"immense":     {Typeflag: tar.TypeReg, Name: "x", Size: 1 << 40},
		"over itself": {Typeflag: tar.TypeReg, Name: "."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			z, err := flate.NewWriter(&b, flate.BestSpeed)
			if err != nil {
				t.Fatal(err)
			}
			out := tar.NewWriter(z)
			if err := out.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			_ = out.Flush() // an archive that claims a huge size and has no data
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := unpack(&b, filepath.Join(dir, "in"), nil); err == nil {
				t.Error("invalid archive: got no error")
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
				t.Errorf("outside the directory: got %v, %v", names, err)
			}
		})
	}
	if err := unpack(bytes.NewReader([]byte{1, 2, 3}), filepath.Join(t.TempDir(), "in"), nil); err == nil {
		t.Error("invalid data: got no error")
	}
}
