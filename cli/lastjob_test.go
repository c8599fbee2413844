package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// testLastJob returns a file in a directory that doesn't exist yet.
func testLastJob(t *testing.T) lastJob {
	t.Helper()
	return lastJob{dir: filepath.Join(t.TempDir(), "a", "dtask"), cluster: fakeCluster}
}

func TestTheLastJobIsReadBack(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	if id, err := l.read(); !errors.Is(err, errNoLastJob) {
		t.Errorf("before a submission: got %q, %v; want errNoLastJob", id, err)
	}
	for _, want := range []string{"1", "18446744073709551615", "42"} {
		if err := l.write(want); err != nil {
			t.Fatal(err)
		}
		if id, err := l.read(); err != nil || id != want {
			t.Errorf("got %q, %v; want %s", id, err, want)
		}
	}
}

func TestOnlyTheUserCanReadTheLastJob(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	if err := l.write("42"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{l.dir: 0o700, l.path(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v; want mode %o", path, info, err, want)
		}
	}
}

func TestTheFileIsReplacedAndNotWrittenInPlace(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	if err := l.write("1234567890"); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(l.path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	if err := l.write("42"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, maxLastJob)
	n, err := before.Read(got)
	if err != nil || string(got[:n]) != "1234567890\n" {
		t.Errorf("a reader that opened the file before got %q, %v", got[:n], err)
	}
	requireOneFile(t, l)
}

// requireOneFile fails the test unless the file is alone in its directory.
func requireOneFile(t *testing.T, l lastJob) {
	t.Helper()
	files, err := os.ReadDir(l.dir)
	if err != nil || len(files) != 1 || files[0].Name() != filepath.Base(l.path()) {
		t.Errorf("got files %v, %v; want %s only", files, err, l.path())
	}
}

func TestConcurrentSubmissionsLeaveTheIDOfOneOfThem(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	written := make(map[string]bool)
	var writers sync.WaitGroup
	for i := range 32 {
		id := strings.Repeat(fmt.Sprint(i%9+1), i%19+1)
		written[id] = true
		writers.Go(func() {
			if err := l.write(id); err != nil {
				t.Error(err)
			}
			if got, err := l.read(); err != nil || len(strings.Trim(got, got[:1])) > 0 {
				t.Errorf("got %q, %v; want an ID that was written completely", got, err)
			}
		})
	}
	writers.Wait()
	if got, err := l.read(); err != nil || !written[got] {
		t.Errorf("got %q, %v; want one of %v", got, err, written)
	}
	requireOneFile(t, l)
}

func TestContentThatIsNotAJobIDCountsAsNone(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "line break": "\n", "zero": "0\n", "negative": "-1\n", "text": "last\n", "a task": "42/a\n", "a path": "../42\n",
		"two IDs": "42\n43\n", "an escape sequence": "42\x1b[2J", "NUL": "42\x00", "out of range": "18446744073709551616\n", "a sign": "+42\n",
		"long": strings.Repeat("1", 1<<20), "long after blanks": strings.Repeat(" ", maxLastJob) + "42", "not UTF-8": "\xff\xfe4\x002\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLastJob(t)
			if err := os.MkdirAll(l.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(l.path(), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if id, err := l.read(); err == nil || err.Error() != l.path()+" has no job ID" {
				t.Errorf("got %q, %v; want no job ID", id, err)
			}
			if err := l.write("42"); err != nil { // the next submission repairs it
				t.Fatal(err)
			}
			if id, err := l.read(); err != nil || id != "42" {
				t.Errorf("after a submission: got %q, %v; want 42", id, err)
			}
		})
	}
}

func TestAnUnreadableFileIsReportedWithItsReason(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	if err := os.MkdirAll(l.path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if id, err := l.read(); err == nil || !strings.HasSuffix(err.Error(), "is not a regular file") {
		t.Errorf("a directory: got %q, %v", id, err)
	}
	l = testLastJob(t)
	if err := l.write("42"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.path(), 0); err != nil {
		t.Fatal(err)
	}
	if id, err := l.read(); os.Geteuid() != 0 && !errors.Is(err, os.ErrPermission) { // root reads every file
		t.Errorf("mode 0: got %q, %v; want permission denied", id, err)
	}
}

func TestAFailedWriteLeavesNoEarlierJob(t *testing.T) {
	t.Parallel()
	l := testLastJob(t)
	if err := os.MkdirAll(l.path(), 0o700); err != nil { // a directory can't be replaced by a file
		t.Fatal(err)
	}
	if err := l.write("42"); err == nil || !strings.HasPrefix(err.Error(), "writing the state file: ") {
		t.Errorf("got %v, want an error", err)
	}
	if files, err := os.ReadDir(l.dir); err != nil || len(files) != 0 {
		t.Errorf("got files %v, %v; want none", files, err)
	}
}

func TestEachClusterHasItsOwnLastJob(t *testing.T) {
	t.Parallel()
	own := testLastJob(t)
	other := lastJob{dir: own.dir, cluster: foreignCluster}
	if err := own.write("42"); err != nil {
		t.Fatal(err)
	}
	if id, err := other.read(); !errors.Is(err, errNoLastJob) {
		t.Errorf("got %q, %v of another cluster; want errNoLastJob", id, err)
	}
}

func TestAClusterWithoutAnIDIsNamedByItsAddresses(t *testing.T) {
	t.Parallel()
	name := clusterName("", []string{"a:1", "b:2"})
	for _, tt := range []struct {
		id    string
		seeds []string
		same  bool
	}{
		{"", []string{"b:2", "a:1"}, true},
		{"", []string{"b:2", "a:1", "b:2"}, true},
		{"", []string{"a:1"}, false},
		{"", nil, false},
		{fakeCluster, []string{"a:1", "b:2"}, false},
	} {
		if got := clusterName(tt.id, tt.seeds); (got == name) != tt.same || strings.ContainsAny(got, "/:") {
			t.Errorf("%q %q: got %q, beside %q; want the same: %t", tt.id, tt.seeds, got, name, tt.same)
		}
	}
	if got := clusterName(fakeCluster, nil); got != fakeCluster {
		t.Errorf("got %q, want the ID", got)
	}
}

func TestTheStateDirectoryIsTheUsersOwn(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"home":                     {map[string]string{"HOME": home}, home + "/.local/state/dtask"},
		"XDG":                      {map[string]string{"HOME": home, "XDG_STATE_HOME": "/x"}, "/x/dtask"},
		"a relative XDG directory": {map[string]string{"HOME": home, "XDG_STATE_HOME": "x"}, home + "/.local/state/dtask"},
		"DTASK_STATE_DIR":          {map[string]string{"DTASK_STATE_DIR": "/d", "XDG_STATE_HOME": "/x"}, "/d"},
		"no home":                  {nil, ""},
		"the root directory":       {map[string]string{"HOME": "/"}, ""},
		"a missing home":           {map[string]string{"HOME": home + "/nobody"}, ""},
		"a file as home":           {map[string]string{"HOME": file}, ""},
		"a relative home":          {map[string]string{"HOME": "."}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stateDir(func(name string) string { return tt.env[name] }); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
