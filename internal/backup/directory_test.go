package backup

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ownPrefix is that of temporary files in tests.
const ownPrefix = ".test-n1@"

// addedTo adds a backup of a cluster at a log index, with jobs that have left at some
// indexes, as a coordinator does.
func addedTo(dir *Directory, cluster string, index uint64, check Check, left ...uint64) (Added, error) {
	return addedEncrypted(dir, nil, cluster, index, check, left...)
}

// addedEncrypted is addedTo for recipients.
func addedEncrypted(dir *Directory, to Recipients, cluster string, index uint64, check Check, left ...uint64) (Added, error) {
	whole, err := dir.Create(to)
	if err != nil {
		return Added{}, err
	}
	defer whole.Discard()
	w, err := NewWriter(whole, Manifest{ClusterID: cluster, Index: index, History: true, HistoryAfter: dir.HistoryTo()})
	if err == nil {
		_, err = w.Write(make([]byte, 2*stateFrame))
	}
	for i, at := range left {
		if err == nil {
			err = w.Job(Chunk{Index: at, Job: uint64(i) + 1})
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return Added{}, err
	}
	return dir.Add(whole, check)
}

func opened(t *testing.T, path string) *Directory {
	t.Helper()
	dir, err := OpenDirectory(path, ownPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// namesIn returns the names in a directory.
func namesIn(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func wantNames(t *testing.T, path string, want ...string) {
	t.Helper()
	if got, err := namesIn(path); err != nil || !slices.Equal(got, want) {
		t.Errorf("the directory has %q, %v, want %q", got, err, want)
	}
}

func TestEachBackupAddsAStateAndTheHistoryThatIsNew(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	first, second := NewSegment(0, 10).Name, NewSegment(10, 30).Name
	for _, run := range []struct {
		index   uint64
		left    []uint64
		segment string
	}{{10, []uint64{4, 5}, first}, {20, nil, ""}, {30, []uint64{25}, second}} {
		added, err := addedTo(opened(t, path), "c1", run.index, nil, run.left...)
		if err != nil {
			t.Fatal(err)
		}
		bytes := int64(0)
		for _, file := range []string{added.State, added.Segment} {
			if file == "" {
				continue
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode() != 0o600 {
				t.Fatalf("%v, %v", info, err)
			}
			bytes += info.Size()
		}
		if filepath.Base(added.State) != NewStateFile(run.index).Name || added.Segment != "" && filepath.Base(added.Segment) != run.segment ||
			(added.Segment == "") != (run.segment == "") || added.Totals.Jobs != uint64(len(run.left)) || int64(added.Bytes) != bytes {
			t.Errorf("at %d: got %+v, %d bytes", run.index, added, bytes)
		}
	}
	dir := opened(t, path)
	if dir.HistoryTo() != 30 {
		t.Errorf("history up to %d", dir.HistoryTo())
	}
	if err := dir.Prune(0); err != nil || len(dir.States) != 3 {
		t.Errorf("%v, %v", dir.States, err)
	}
	if err := dir.Prune(2); err != nil {
		t.Error(err)
	}
	wantNames(t, path, first, second, NewStateFile(20).Name, NewStateFile(30).Name)
}

func TestAStateThatCanNotBeBuiltGetsNoName(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	bad := errors.New("not a state")
	if _, err := addedTo(opened(t, path), "c1", 10, func(io.Reader) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	wantNames(t, path)
	read := 0
	if _, err := addedTo(opened(t, path), "c1", 10, func(state io.Reader) error {
		b, err := io.ReadAll(state)
		read = len(b)
		return err
	}); err != nil || read != 2*stateFrame {
		t.Errorf("%d bytes of state, %v", read, err)
	}
	wantNames(t, path, NewStateFile(10).Name)
}

func TestADirectoryOfAnotherClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if _, err := addedTo(opened(t, path), "c1", 10, nil); err != nil {
		t.Fatal(err)
	}
	_, err := addedTo(opened(t, path), "c2", 20, nil, 15)
	if other, ok := errors.AsType[*OtherClusterError](err); !ok || other.Has != "c1" || other.Cluster != "c2" {
		t.Errorf("got %v", err)
	}
	wantNames(t, path, NewStateFile(10).Name)
}

// A process that was killed leaves its temporary files, and others may be writing theirs.
func TestOnlyTheFilesOfTheOwnPrefixAreRemoved(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	others := []string{".test-n10@1", ".test-n2@1", "notes", NewStateFile(10).Name}
	if _, err := addedTo(opened(t, path), "c1", 10, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{ownPrefix + "1", ownPrefix + "2"}, others[:3]...) {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := opened(t, path).Clean(); err != nil {
		t.Error(err)
	}
	wantNames(t, path, others...)
}

func TestADirectoryThatIsGoneOrDamagedIsAnError(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if _, err := OpenDirectory(filepath.Join(path, "gone"), ownPrefix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: got %v", err)
	}
	file := filepath.Join(path, NewStateFile(1).Name)
	if err := os.WriteFile(file, []byte("not a backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDirectory(path, ownPrefix); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("damaged: got %v", err)
	}
	if _, err := OpenDirectory(file, ownPrefix); err == nil {
		t.Error("a file was opened as a directory")
	}
}

func TestATargetIsTheURLOfADirectory(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"file:///mnt/backups": "/mnt/backups", "file:///a%20b/../c/": "/c", "file:/mnt": "/mnt"} {
		if got, err := ParseTarget(target); err != nil || got.Dir != want || len(got.To) > 0 {
			t.Errorf("%s: got %+v, %v, want %q", target, got, err, want)
		}
	}
	for _, target := range []string{
		"", "/mnt/backups", "file://mnt/backups", "file:mnt", "s3://bucket/a", "file:///a?b=c", "file:///a#b", "file://user@/a", "file:///a%00b", "file:///a\nb",
		"file:///" + strings.Repeat("x", maxTarget),
	} {
		if got, err := ParseTarget(target); err == nil {
			t.Errorf("%q: got %+v", target, got)
		}
	}
}
