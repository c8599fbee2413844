package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// testTimeout bounds every wait; it guards against hanging and measures nothing.
const testTimeout = 2 * time.Minute

// fatals records the errors passed to Config.Fatal.
type fatals struct {
	mu   sync.Mutex
	errs []error
}

func (f *fatals) record(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *fatals) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs
}

// openBolt opens a defended store, with its entries in chunks, on a bolt file.
func openBolt(t *testing.T, path string) (*Store, *fatals) {
	t.Helper()
	bolt, err := raftboltdb.NewBoltStore(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Get(keyKind); errors.Is(err, raftboltdb.ErrKeyNotFound) {
		if err := (&Contents{}).setKind(bolt, Bolt); err != nil {
			t.Fatal(err)
		}
	}
	f := &fatals{}
	s := &Store{backend: chunks{bolt}, path: path, hang: time.Minute, fatal: f.record}
	t.Cleanup(func() { _ = s.Close() })
	return s, f
}

// corrupt changes a closed bolt file by rewriting the value of a key.
func corrupt(t *testing.T, path string, bucket, key []byte, change func(value []byte)) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		value := bytes.Clone(tx.Bucket(bucket).Get(key))
		change(value)
		return tx.Bucket(bucket).Put(key, value)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// openNew opens the store of an empty directory, as a node does.
func openNew(tb testing.TB, dir string, tune func(*Config)) *Store {
	tb.Helper()
	cfg := Config{
		Dir: dir, Contents: &Contents{}, HadEntries: true, HangTimeout: testTimeout, Fatal: func(err error) { tb.Error(err) },
		Logger: slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(),
	}
	tune(&cfg)
	s, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func rewrite(tb testing.TB, path string, change func([]byte)) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		tb.Fatal(err)
	}
	change(data)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}

func key(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func entries(first, count uint64) []*raft.Log {
	var logs []*raft.Log
	for i := range count {
		logs = append(logs, &raft.Log{Index: first + i, Term: 2, Type: raft.LogCommand, Data: []byte("the data of an entry")})
	}
	return logs
}

func wantDamage(t *testing.T, err error, f *fatals) {
	t.Helper()
	if _, ok := errors.AsType[*DamageError](err); !ok {
		t.Errorf("got %v, want a DamageError", err)
	}
	if n := len(f.all()); n != 1 {
		t.Errorf("fatal was called %d times, want once", n)
	}
}

func TestAFlippedByteOfAStoredEntryIsDetected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	if err := s.StoreLogs(entries(1, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	corrupt(t, path, bucketLogs, key(firstChunk(2)), func(value []byte) { value[bytes.Index(value, []byte("data"))] ^= 1 })

	s, f := openBolt(t, path)
	var log raft.Log
	if err := s.GetLog(1, &log); err != nil || string(log.Data) != "the data of an entry" {
		t.Errorf("entry 1: %v, %q", err, log.Data)
	}
	wantDamage(t, s.GetLog(2, &log), f)
	if err := s.StoreLogs(entries(4, 1)); err == nil {
		t.Error("a failed store accepted another entry")
	}
}

func TestAFlippedTermOfTheStableStoreIsDetected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	if _, err := s.GetUint64(keyTerm); err == nil || err.Error() != "not found" {
		t.Errorf("a missing term is %v, want raft's own \"not found\"", err)
	}
	if err := s.SetUint64(keyTerm, 7); err != nil {
		t.Fatal(err)
	}
	if term, err := s.GetUint64(keyTerm); err != nil || term != 7 {
		t.Errorf("term is %d, %v", term, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	corrupt(t, path, bucketConf, keyTerm, func(value []byte) { value[len(value)-1] ^= 1 })

	s, f := openBolt(t, path)
	_, err := s.GetUint64(keyTerm)
	wantDamage(t, err, f)
	if _, err := Inspect(filepath.Dir(path)); err == nil {
		t.Error("Inspect accepts a flipped term")
	}
}

func TestAReceivedEntryWithAWrongChecksumIsNotStored(t *testing.T) {
	t.Parallel()
	s, f := openBolt(t, filepath.Join(t.TempDir(), FileName))
	logs := entries(1, 2)
	for _, log := range logs {
		seal(log) // as the leader did
	}
	logs[1].Data = []byte("something else")
	wantDamage(t, s.StoreLogs(logs), f)
	if last, err := s.backend.LastIndex(); err != nil || last != 0 {
		t.Errorf("entries up to %d were stored, %v", last, err)
	}
}

// Otherwise raft keeps the last entries before a snapshot that the leader sent, with a
// hole after them: entries that may never have been committed, and that this replica
// would take for damage as soon as it leads and a follower lacks one.
func TestALeadersSnapshotReplacesTheWholeLog(t *testing.T) {
	t.Parallel()
	cache, err := raft.NewLogCache(8, &Store{})
	if err != nil {
		t.Fatal(err)
	}
	var logs raft.LogStore = cache
	if monotonic, ok := logs.(raft.MonotonicLogStore); !ok || !monotonic.IsMonotonic() {
		t.Error("raft assumes that this log may have holes")
	}
}

func TestAHoleInTheLogIsDamage(t *testing.T) {
	t.Parallel()
	s, f := openBolt(t, filepath.Join(t.TempDir(), FileName))
	if err := errors.Join(s.StoreLogs(entries(1, 2)), s.StoreLogs(entries(4, 2))); err != nil {
		t.Fatal(err)
	}
	var log raft.Log
	for _, index := range []uint64{9, 0} {
		if err := s.GetLog(index, &log); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d beyond the log: %v", index, err)
		}
	}
	wantDamage(t, s.GetLog(3, &log), f)
}

func TestDeleteRangeLeavesExactlyTheComplement(t *testing.T) {
	t.Parallel()
	const count = 3 * maxDeleteStep
	for _, r := range []struct {
		name        string
		first, last uint64
	}{
		{"front in chunks", 1, 2*maxDeleteStep + 17},
		{"end at once", maxDeleteStep / 2, count},
		{"everything", 1, count},
		{"one", 5, 5},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s, f := openBolt(t, filepath.Join(t.TempDir(), FileName))
			if err := s.StoreLogs(entries(1, count)); err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteRange(r.first, r.last); err != nil {
				t.Fatal(err)
			}
			for index := uint64(1); index <= count; index++ {
				var log raft.Log
				err := s.backend.GetLog(index, &log)
				deleted := r.first <= index && index <= r.last
				if deleted != errors.Is(err, raft.ErrLogNotFound) {
					t.Fatalf("entry %d: %v", index, err)
				}
			}
			if len(f.all()) != 0 {
				t.Errorf("fatal: %v", f.all())
			}
		})
	}
}

// brokenBackend fails or hangs.
type brokenBackend struct {
	Backend
	err  error
	wait chan struct{} // calls wait for it, if not nil
}

func (b *brokenBackend) StoreLogs([]*raft.Log) error {
	if b.wait != nil {
		<-b.wait
	}
	return b.err
}

func (b *brokenBackend) Set([]byte, []byte) error { panic("page 7 is not a leaf") }
func (b *brokenBackend) Close() error             { return nil }

func TestAFailingStoreIsFatalOnce(t *testing.T) {
	t.Parallel()
	ioError := errors.New("input/output error")
	f := &fatals{}
	s := &Store{backend: &brokenBackend{err: ioError}, hang: time.Minute, fatal: f.record}
	for range 3 {
		if err := s.StoreLogs(entries(1, 1)); !errors.Is(err, ioError) {
			t.Errorf("got %v, want %v", err, ioError)
		}
	}
	if err := s.SetUint64(keyTerm, 1); !errors.Is(err, ioError) {
		t.Errorf("a call after the failure: %v, want %v", err, ioError)
	}
	if errs := f.all(); len(errs) != 1 || !errors.Is(errs[0], ioError) {
		t.Errorf("fatal got %v, want the error once", errs)
	}
}

func TestAPanicOfTheStoreIsDamage(t *testing.T) {
	t.Parallel()
	f := &fatals{}
	s := &Store{backend: &brokenBackend{}, path: "raft.db", hang: time.Minute, fatal: f.record}
	wantDamage(t, s.SetUint64(keyTerm, 1), f)
}

func TestAFailureEndsTheGoroutineThatRaftWouldPanicIn(t *testing.T) {
	t.Parallel()
	f := &fatals{}
	s := &Store{backend: &brokenBackend{}, hang: time.Minute, fatal: f.record}
	s.running.Store(true)
	done, returned := make(chan struct{}), false
	go func() {
		defer close(done)
		_ = s.SetUint64(keyTerm, 1)
		returned = true
	}()
	<-done
	if returned {
		t.Error("SetUint64 returned, and raft would panic")
	}
}

func TestAHangingStoreIsFatal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fatals{}
		b := &brokenBackend{wait: make(chan struct{})}
		s := &Store{backend: b, hang: 1500 * time.Millisecond, fatal: f.record}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.StoreLogs(entries(1, 1))
		}()
		time.Sleep(1400 * time.Millisecond)
		synctest.Wait()
		if len(f.all()) != 0 {
			t.Errorf("fatal after 1.4 s: %v", f.all())
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if errs := f.all(); len(errs) != 1 || !errors.Is(errs[0], ErrHang) {
			t.Errorf("fatal got %v after 1.6 s, want ErrHang once", errs)
		}
		close(b.wait)
		<-done
	})
}

func TestADamagedStoreFileIsExplainedAndKept(t *testing.T) {
	t.Parallel()
	healthy := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, healthy)
	for i := range uint64(50) {
		if err := s.StoreLogs(entries(1+100*i, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(healthy)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{
		"garbage":           bytes.Repeat([]byte("garbage "), 4096),
		"cut in the middle": content[:len(content)/2/4096*4096],
		"cut to two pages":  content[:8192],
		"a few bytes":       content[:100],
		"a page of zeros":   append(bytes.Clone(content[:8*4096]), append(make([]byte, 64*4096), content[72*4096:]...)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Inspect(dir)
			var damage *DamageError
			if !errors.As(err, &damage) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "must not serve from it") {
				t.Errorf("got %v, want a DamageError that names the file and what it means", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("the damaged file was changed, %v", err)
			}
		})
	}
}
