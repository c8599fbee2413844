//go:build linux

package faultfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/test/chaos/faultfs/mount"
	"github.com/dtask/dtask/test/cluster"
)

// guard bounds every wait: it keeps a broken test from hanging.
const guard = 30 * time.Second

// program builds faultfsd once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dtask-faultfsd-")
	if err != nil {
		return "", err
	}
	return Build(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// mounted mounts a disk for the duration of the test.
func mounted(t *testing.T) *Disk {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "dtask-disk-") //nolint:usetesting // unmounted before it is removed
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), path, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		must(t, d.Close())
		must(t, os.Remove(dir))
	})
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cut cuts the power and restores it.
func cut(t *testing.T, d *Disk, seed uint64) Loss {
	t.Helper()
	must(t, d.PowerOff())
	loss, err := d.PowerOn(seed)
	must(t, err)
	return loss
}

// write writes a file in one call. If synced, its contents are durable; its name is
// not.
func write(t *testing.T, path string, text []byte, synced bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.Write(text)
	must(t, err)
	if synced {
		must(t, f.Sync())
	}
	must(t, f.Close())
}

func syncDir(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	must(t, err)
	must(t, errors.Join(dir.Sync(), dir.Close()))
}

func TestSyncedDataSurvivesEveryPowerCut(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "kept")
	want := bytes.Repeat([]byte("durable "), 1000)
	write(t, path, want, true)
	syncDir(t, d.Dir)
	for seed := range uint64(20) {
		cut(t, d, seed)
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut %d: got %d bytes, %v; want %d", seed, len(got), err, len(want))
		}
	}
}

func TestUnsyncedDataMaySurviveWhollyPartlyOrNotAtAll(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "file")
	old, fresh := bytes.Repeat([]byte("o"), 4096), bytes.Repeat([]byte("n"), 4096)
	seen := map[string]int{}
	for seed := range uint64(60) {
		write(t, path, old, true)
		syncDir(t, d.Dir)
		write(t, path, fresh, false)
		cut(t, d, seed)
		got, err := os.ReadFile(path)
		must(t, err)
		switch {
		case bytes.Equal(got, old):
			seen["dropped"]++
		case bytes.Equal(got, fresh):
			seen["kept"]++
		default:
			seen["torn"]++
			for i := 0; i < len(got); i += 512 {
				if one := got[i : i+512]; !bytes.Equal(one, old[:512]) && !bytes.Equal(one, fresh[:512]) {
					t.Fatalf("cut %d: the sector at %d is neither old nor new: want one of them", seed, i)
				}
			}
		}
	}
	for _, what := range []string{"dropped", "kept", "torn"} {
		if seen[what] == 0 {
			t.Errorf("none of 60 cuts left the write %s: %v", what, seen)
		}
	}
}

func TestANewNameMayVanishUntilItsDirectoryIsSynced(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	old, tmp := filepath.Join(d.Dir, "state"), filepath.Join(d.Dir, "state.tmp")
	seen := map[string]int{}
	for seed := range uint64(40) {
		write(t, old, []byte("old"), true)
		syncDir(t, d.Dir)
		write(t, tmp, []byte("new"), true)
		must(t, os.Rename(tmp, old))
		if seed%2 == 1 {
			syncDir(t, d.Dir)
		}
		cut(t, d, seed)
		got, err := os.ReadFile(old)
		must(t, err)
		if seed%2 == 1 && string(got) != "new" {
			t.Fatalf("cut %d: got %q after the rename and a sync of the directory", seed, got)
		}
		if seed%2 == 0 {
			seen[string(got)]++
		}
		_ = os.Remove(tmp)
		must(t, os.Remove(old))
		syncDir(t, d.Dir)
	}
	if seen["old"] == 0 || seen["new"] == 0 || seen["old"]+seen["new"] != 20 {
		t.Errorf("renames without a sync of the directory: got %v, want both outcomes and no other", seen)
	}
}

func TestARemovedFileMayReappearUntilItsDirectoryIsSynced(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "file")
	back := 0
	for seed := range uint64(20) {
		write(t, path, []byte("x"), true)
		syncDir(t, d.Dir)
		must(t, os.Remove(path))
		cut(t, d, seed)
		if text, err := os.ReadFile(path); err == nil && string(text) == "x" {
			back++
		}
	}
	if back == 0 || back == 20 {
		t.Errorf("the file reappeared %d times of 20, want at least once", back)
	}
}

func TestWritesAndSyncsFailWithoutPower(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	f, err := os.Create(filepath.Join(d.Dir, "file"))
	must(t, err)
	must(t, d.PowerOff())
	if _, err := f.WriteString("x"); !errors.Is(err, syscall.EIO) {
		t.Errorf("writing without power: got %v, want EIO", err)
	}
	if err := f.Sync(); err == nil {
		t.Error("got no error for a sync without power")
	}
	_ = f.Close()
}

func TestASyncHangsUntilItIsReleased(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	f, err := os.Create(filepath.Join(d.Dir, "file"))
	must(t, err)
	_, err = f.WriteString("x")
	must(t, err)
	stall, err := d.Hang(Sync, "fi*")
	must(t, err)
	synced := make(chan error, 1)
	go func() { synced <- f.Sync() }()
	must(t, cluster.Until(t.Context(), "the sync hangs", guard, func(context.Context) error {
		if r, err := stall.Now(); err != nil || r.Waiting != 1 {
			return fmt.Errorf("%d operations wait: %w", r.Waiting, err)
		}
		return nil
	}))
	other, err := os.Create(filepath.Join(d.Dir, "other"))
	must(t, err)
	must(t, other.Sync()) // only the other file hangs
	select {
	case err := <-synced:
		t.Fatalf("the sync returned %v, want it to hang", err)
	default:
	}
	must(t, stall.Lift())
	must(t, <-synced)
	must(t, errors.Join(f.Close(), other.Close()))
}

func TestAFailOnceRuleFiresOnce(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	f, err := os.Create(filepath.Join(d.Dir, "file"))
	must(t, err)
	for _, op := range []func() error{
		func() error { _, err := d.FailOnce(Write, "file", syscall.EIO); return err },
		func() error { _, err := d.FailOnce(Sync, "file", syscall.EIO); return err },
	} {
		must(t, op())
	}
	_, err = f.WriteAt([]byte("x"), 0)
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("first write: got %v, want EIO", err)
	}
	_, err = f.WriteAt([]byte("x"), 0)
	must(t, err)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("first sync: got %v, want EIO", err)
	}
	must(t, f.Sync())
	must(t, f.Close())
	unreadable, err := d.Add(Rule{Ops: []mount.Op{Read}, Name: "file", Errno: syscall.EIO})
	must(t, err)
	if _, err := os.ReadFile(f.Name()); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading: got %v, want EIO", err)
	}
	must(t, unreadable.Lift())
	got, err := os.ReadFile(f.Name())
	if err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAFullDiskReportsItsFreeSpaceUnlessHidden(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	must(t, d.SetFree(64<<10, false))
	var stat syscall.Statfs_t
	must(t, syscall.Statfs(d.Dir, &stat))
	if free := int64(stat.Bavail) * stat.Bsize; free != 64<<10 {
		t.Errorf("got %d free bytes, want 64 KiB", free)
	}
	path := filepath.Join(d.Dir, "file")
	if err := os.WriteFile(path, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing more than the free space: got %v, want ENOSPC", err)
	}
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, make([]byte, 64<<10), 0o600))
	must(t, d.SetFree(0, true))
	must(t, syscall.Statfs(d.Dir, &stat))
	if free := int64(stat.Bavail) * stat.Bsize; free < 1<<30 {
		t.Errorf("got %d free bytes, want plenty", free)
	}
	if err := os.WriteFile(path+"2", []byte("x"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writing to a full disk: got %v, want ENOSPC", err)
	}
	must(t, d.SetFree(Plenty, false))
	must(t, os.WriteFile(path+"2", []byte("x"), 0o600))
}

func TestAReadOnlyDiskRejectsWritesAndServesReads(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "file")
	write(t, path, []byte("x"), true)
	f, err := d.ReadOnly()
	must(t, err)
	for what, err := range map[string]error{
		"writing":  os.WriteFile(path, []byte("y"), 0o600),
		"making":   os.Mkdir(path+"2", 0o700),
		"renaming": os.Rename(path, path+"2"),
		"removing": os.Remove(path),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: got %v, want EROFS", what, err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	must(t, f.Lift())
	must(t, os.Remove(path))
}

func TestAFlippedBitIsVisibleThroughAMemoryMapping(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "file")
	write(t, path, make([]byte, 8192), true)
	f, err := os.Open(path)
	must(t, err)
	mapped, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ, syscall.MAP_SHARED)
	must(t, err)
	if mapped[5000] != 0 {
		t.Fatalf("got %d before the flip, want 0", mapped[5000])
	}
	bit, err := d.Flip("file", 5000*8+3, 0)
	must(t, err)
	must(t, cluster.Until(t.Context(), "the mapping shows the flipped bit", guard, func(context.Context) error {
		if mapped[5000] != 1<<3 {
			return fmt.Errorf("got %d", mapped[5000])
		}
		return nil
	}))
	if bit != 5000*8+3 {
		t.Errorf("bit %d was flipped", bit)
	}
	must(t, errors.Join(syscall.Munmap(mapped), f.Close()))
}

func TestAnOldCopyIsRestoredCompletely(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "a", "file")
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	write(t, path, []byte("old"), false)
	must(t, d.Save("copy"))
	write(t, path, []byte("newer"), true)
	must(t, os.Mkdir(filepath.Join(d.Dir, "b"), 0o700))
	must(t, d.Load("copy"))
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "old" {
		t.Errorf("got %q, %v; want the saved contents", got, err)
	}
	if files, err := d.Files(); err != nil || len(files) != 1 || files[0] != "a/file" {
		t.Errorf("got files %v, %v", files, err)
	}
	to := filepath.Join(t.TempDir(), "export")
	must(t, d.Export(to))
	if got, err := os.ReadFile(filepath.Join(to, "a", "file")); err != nil || string(got) != "old" {
		t.Errorf("exported: %q, %v", got, err)
	}
}

// TestADatabaseKeepsItsCommits puts a bbolt database, which maps its file, on the
// disk: committed values survive every power cut.
func TestADatabaseKeepsItsCommits(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "test.db")
	committed := 0
	for seed := range uint64(15) {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoFreelistSync: true})
		must(t, err)
		if seed == 0 {
			syncDir(t, d.Dir)
		}
		must(t, db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("b"))
			for i := range committed {
				if v := b.Get(fmt.Appendf(nil, "%06d", i)); len(v) != 700 {
					return fmt.Errorf("cut %d: the value %d of %d has %d bytes", seed, i, committed, len(v))
				}
			}
			return nil
		}))
		for range 20 {
			must(t, db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				if err != nil {
					return err
				}
				return b.Put(fmt.Appendf(nil, "%06d", committed), make([]byte, 700))
			}))
			committed++
		}
		// Cut the power during a commit.
		hold, err := d.Hang(Sync, "")
		must(t, err)
		ended := make(chan error, 1)
		go func() {
			// When the disk is gone, its mapped pages are too. The database is
			// abandoned as it is.
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if r := recover(); r != nil {
					ended <- fmt.Errorf("%v", r)
				}
			}()
			ended <- db.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("b")).Put([]byte("unsure"), make([]byte, 9000))
			})
		}()
		must(t, cluster.Until(t.Context(), "the commit hangs", guard, func(context.Context) error {
			if r, err := hold.Now(); err != nil || r.Waiting == 0 {
				return fmt.Errorf("no operation waits: %w", err)
			}
			return nil
		}))
		must(t, d.PowerOff())
		if err := <-ended; err == nil {
			t.Error("got no error for a commit without power")
		}
		_, err = d.PowerOn(seed)
		must(t, err)
	}
}

func TestAUnixSocketOnADiskAcceptsConnections(t *testing.T) {
	t.Parallel()
	d := mounted(t)
	path := filepath.Join(d.Dir, "socket")
	for range 2 { // a new one takes the place of the one before
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chmod(path, 0o600), conn.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the listener was closed: %v", err)
		}
	}
}
