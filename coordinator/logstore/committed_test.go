package logstore

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// openOnce opens the store of a directory; the caller closes it.
func openOnce(t *testing.T, dir string, tune func(*Config)) *Store {
	t.Helper()
	contents, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dir: dir, Contents: contents, HadEntries: true, HangTimeout: testTimeout, Fatal: func(err error) { t.Error(err) },
		Logger: slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(),
	}
	tune(&cfg)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reopened is the committed index that a data directory has after a restart.
func reopened(t *testing.T, dir string, kind Kind) uint64 {
	t.Helper()
	s := openOnce(t, dir, func(cfg *Config) { cfg.Kind = kind })
	committed := s.Committed()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return committed
}

func TestTheCommittedIndexIsPersistedWithTheNextEntry(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var commit atomic.Uint64
			s := openOnce(t, dir, func(cfg *Config) { cfg.Kind, cfg.CommitIndex = kind, commit.Load })
			received := entries(1, 10)
			for _, log := range received {
				seal(log)
			}
			if err := s.StoreLogs(received); err != nil {
				t.Fatal(err)
			}
			commit.Store(7)
			if got := s.PersistedCommitted(); got != 0 {
				t.Errorf("%d is persisted before the next write", got)
			}
			if err := s.StoreLogs(entries(11, 3)); err != nil {
				t.Fatal(err)
			}
			if got := s.PersistedCommitted(); got != 7 {
				t.Errorf("%d is persisted, want 7", got)
			}
			var log raft.Log
			for i := range uint64(13) { // what followers get has nothing of it
				if err := s.GetLog(i+1, &log); err != nil || len(log.Extensions) != checksumLen || Verify(&log) != "" {
					t.Errorf("entry %d is read with extensions %x, %v; %s", i+1, log.Extensions, err, Verify(&log))
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := OpenReader(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Committed(); err != nil || got != 7 {
				t.Errorf("the stopped replica's directory has committed index %d, %v; want 7", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if got := reopened(t, dir, kind); got != 7 {
				t.Errorf("after a restart %d is known to be committed, want 7", got)
			}
		})
	}
}

// The entries that have the committed index may be deleted: they need not be committed
// themselves.
func TestTheCommittedIndexSurvivesTheDeletionOfTheLastEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var commit atomic.Uint64
			s := openOnce(t, dir, func(cfg *Config) { cfg.Kind, cfg.CommitIndex = kind, commit.Load })
			if err := s.StoreLogs(entries(1, 10)); err != nil {
				t.Fatal(err)
			}
			commit.Store(7)
			if err := errors.Join(s.StoreLogs(entries(11, 3)), s.DeleteRange(9, 13), s.Close()); err != nil {
				t.Fatal(err)
			}
			r, err := OpenReader(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Committed(); err != nil || got != 7 {
				t.Errorf("the stopped replica's directory has committed index %d, %v; want 7", got, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if got := reopened(t, dir, kind); got != 7 {
				t.Errorf("after a restart %d is known to be committed, want 7", got)
			}
		})
	}
}

// countingBackend counts the writes of the stable store.
type countingBackend struct {
	Backend

	sets int
}

func (b *countingBackend) Set(key, value []byte) error {
	b.sets++
	return b.Backend.Set(key, value)
}

func TestAnIdleStoreWritesAChangedCommittedIndexOnce(t *testing.T) {
	t.Parallel()
	bolt, err := raftboltdb.NewBoltStore(t.TempDir() + "/" + FileName)
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingBackend{Backend: bolt}
	var commit atomic.Uint64
	log := &committedLog{Backend: chunks{counting}, known: commit.Load}
	s := &Store{backend: log, committed: log, hang: testTimeout, fatal: func(err error) { t.Error(err) }}
	for _, step := range []struct {
		commit uint64
		sets   int
	}{{0, 0}, {3, 1}, {3, 1}, {4, 2}, {4, 2}} {
		commit.Store(step.commit)
		if err := s.StoreCommitted(); err != nil {
			t.Fatal(err)
		}
		if counting.sets != step.sets || s.PersistedCommitted() != step.commit {
			t.Errorf("commit index %d: %d writes in total, %d persisted; want %d writes", step.commit, counting.sets, s.PersistedCommitted(), step.sets)
		}
	}
	commit.Store(5)
	if err := s.StoreLogs(entries(6, 1)); err != nil { // has it, too
		t.Fatal(err)
	}
	if err := s.StoreCommitted(); err != nil || counting.sets != 2 {
		t.Errorf("an index that an entry has was written again: %d writes, %v", counting.sets, err)
	}
	fresh := &committedLog{Backend: chunks{bolt}}
	if err := fresh.load(); err != nil || fresh.committed() != 4 {
		t.Errorf("the stable store has %d, %v; want 4", fresh.committed(), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestARefusedDeletionFailsTheStoreAndKeepsTheEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir, f, refused := t.TempDir(), &fatals{}, errors.New("the entries are committed")
			s := openOnce(t, dir, func(cfg *Config) {
				cfg.Kind, cfg.Fatal = kind, f.record
				cfg.MayDelete = func(first, _ uint64) error {
					if first > 5 {
						return nil
					}
					return refused
				}
			})
			if err := errors.Join(s.StoreLogs(entries(1, 10)), s.DeleteRange(9, 10)); err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteRange(5, 8); !errors.Is(err, refused) {
				t.Errorf("deleting returned %v", err)
			}
			if all := f.all(); len(all) != 1 || !errors.Is(all[0], refused) {
				t.Errorf("fatal errors: %v", all)
			}
			if err := s.StoreLogs(entries(5, 1)); err == nil {
				t.Error("the store accepted an entry after it refused a deletion")
			}
			_ = s.Close()
			if contents, err := Inspect(dir); err != nil || contents.First != 1 || contents.Last != 8 {
				t.Errorf("the log has entries %d to %d, %v; want 1 to 8", contents.First, contents.Last, err)
			}
		})
	}
}

func TestAFlippedBitInACommittedIndexIsDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openOnce(t, dir, func(cfg *Config) { cfg.CommitIndex = func() uint64 { return 1 } })
	if err := errors.Join(s.StoreLogs(entries(1, 2)), s.Close()); err != nil {
		t.Fatal(err)
	}
	var stored raft.Log
	bolt, err := raftboltdb.NewBoltStore(s.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := bolt.GetLog(firstChunk(2), &stored); err != nil {
		t.Fatal(err)
	}
	stored.Extensions[checksumLen+7] ^= 4
	if err := bolt.StoreLog(&stored); err != nil {
		t.Fatal(err)
	}
	f := &fatals{}
	damaged := &Store{backend: &committedLog{Backend: chunks{bolt}}, path: s.path, hang: testTimeout, fatal: f.record}
	err = damaged.GetLog(2, &stored)
	if wantDamage(t, err, f); err == nil || !strings.Contains(err.Error(), "committed index") {
		t.Errorf("reading a flipped committed index: %v", err)
	}
	if err := damaged.Close(); err != nil {
		t.Error(err)
	}
}
