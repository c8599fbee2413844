package worker

import (
	"os"
	"path/filepath"
	"testing"
)

func TestASpareDirectoryIsUsedAgainOnlyIfItIsEmptyAndUnchanged(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(path string) error
		want   bool
	}{
		"unchanged":         {func(string) error { return nil }, true},
		"a file":            {func(path string) error { return os.WriteFile(filepath.Join(path, ".file"), nil, 0o600) }, false},
		"a directory":       {func(path string) error { return os.Mkdir(filepath.Join(path, "sub"), 0o700) }, false},
		"other permissions": {func(path string) error { return os.Chmod(path, 0o755) }, false}, //nolint:gosec // on purpose
		"removed":           {os.Remove, false},
		"replaced": {func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, root := &dirs{}, t.TempDir()
			first, spare, second := filepath.Join(root, "first"), filepath.Join(root, "spare"), filepath.Join(root, "second")
			var s spareDir
			if err := s.make(d, first, nil); err != nil {
				t.Fatal(err)
			}
			if err := x.change(first); err != nil {
				t.Fatal(err)
			}
			if kept := s.keep(true, spare); kept != x.want {
				t.Errorf("kept = %v, want %v", kept, x.want)
			}
			if err := s.make(d, second, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(spare); err == nil || !isEmpty(second) {
				t.Errorf("the next directory is not new: %v; empty: %v", err, isEmpty(second))
			}
		})
	}
}

func TestASpareDirectoryThatIsNotWantedIsLeftAlone(t *testing.T) {
	t.Parallel()
	d, root := &dirs{}, t.TempDir()
	first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
	var s spareDir
	if err := s.make(d, first, nil); err != nil {
		t.Fatal(err)
	}
	if s.keep(false, filepath.Join(root, "spare")) {
		t.Error("it was kept")
	}
	if err := s.make(d, second, nil); err != nil || !isEmpty(first) || !isEmpty(second) {
		t.Errorf("got %v; the first directory exists: %v, the second one: %v", err, isEmpty(first), isEmpty(second))
	}
}
