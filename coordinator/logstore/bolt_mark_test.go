package logstore

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func isDamage(err error) bool {
	_, damaged := errors.AsType[*DamageError](err)
	return damaged
}

// openLogged opens a data directory as a starting replica does, and returns its messages.
func openLogged(dir string, kind Kind) (s *Store, messages string, err error) {
	contents, err := Inspect(dir)
	if err != nil {
		return nil, "", err
	}
	var log bytes.Buffer
	s, err = Open(Config{
		Dir: dir, Kind: kind, Contents: contents, HadEntries: true, HangTimeout: testTimeout, Fatal: func(error) {},
		Logger: slog.New(slog.NewTextHandler(&log, nil)), RaftLogger: hclog.NewNullLogger(),
	})
	return s, log.String(), err
}

// newestRootOf returns the offset of the newer root of a closed raft.db.
func newestRootOf(t *testing.T, path string) (at int64) {
	t.Helper()
	file, err := os.Open(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	p := &pages{file: file}
	if _, ok := p.newestRoot(); !ok {
		t.Fatal("raft.db has no root")
	}
	at = int64(p.transaction%2) * p.page //nolint:gosec // 0 or 1
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestAnUnreadableRootUndoesNoAcknowledgedWrite flips a bit in the newer root of
// raft.db, which has the last entries, or the last vote beside segments. bbolt would
// continue from the transaction before.
func TestAnUnreadableRootUndoesNoAcknowledgedWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, markPath := filepath.Join(dir, FileName), filepath.Join(dir, boltMarkName)
			s, err := openSilent(dir, kind)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(s.StoreLogs(entries(1, 5)), s.SetUint64(keyVoteTerm, 3), s.Set(keyVoteCandidate, []byte("n2")))
			if kind == Bolt {
				err = errors.Join(err, s.StoreLogs(entries(6, 2)))
			}
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			at := newestRootOf(t, path)
			rewrite(t, path, func(content []byte) { content[at+pageHeader+20] ^= 1 })
			if _, err := Inspect(dir); !isDamage(err) || !strings.Contains(err.Error(), "was stored") {
				t.Errorf("got %v, want damage", err)
			}

			mark, err := os.ReadFile(filepath.Clean(markPath))
			if err := errors.Join(err, os.Remove(markPath)); err != nil {
				t.Fatal(err)
			}
			if _, err := Inspect(dir); !isDamage(err) {
				t.Errorf("without the mark: got %v, want damage", err)
			}

			// A mark of before the write: it may be unfinished.
			last, _ := decodeMark(mark)
			m, err := openMark(dir, boltMarkName, last-1)
			if err := errors.Join(err, m.close()); err != nil {
				t.Fatal(err)
			}
			s, messages, err := openLogged(dir, kind)
			if err != nil {
				t.Fatalf("an unfinished transaction: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(messages, "dropped an unreadable last write") || strings.Contains(messages, "never acknowledged") {
				t.Errorf("logged %q", messages)
			}
		})
	}
}

// openSilent opens a directory with which nothing is wrong.
func openSilent(dir string, kind Kind) (*Store, error) {
	s, messages, err := openLogged(dir, kind)
	if err != nil || messages == "" {
		return s, err
	}
	return s, errors.Join(errors.New("a whole store logs "+messages), s.Close())
}

func TestTheMarkOfRaftDBFollowsItsTransactions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openSilent(dir, Bolt)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := readMark(dir, boltMarkName)
	for i, write := range []func() error{
		func() error { return s.StoreLogs(entries(1, 3)) },
		func() error { return s.SetUint64(keyTerm, 7) },
		func() error { return s.DeleteRange(3, 3) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		after, ok := readMark(dir, boltMarkName)
		if !ok || after <= before {
			t.Errorf("write %d: the mark is %d, %t, and was %d", i, after, ok, before)
		}
		before = after
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openSilent(dir, Bolt); err != nil {
		t.Fatal(err)
	}
	var log raft.Log
	if err := errors.Join(s.GetLog(2, &log), s.Close()); err != nil {
		t.Error(err)
	}
}
