package logs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// After a power failure, a file may be cut, may have zeros in place of blocks, or may be
// missing. What is read afterwards must be what was written, at its offset.
func TestAfterAPowerFailureOnlyWhatWasWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "logs") //nolint:usetesting // one for each of many runs
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		l := Limits{SegmentBytes: 600, MaxShared: 1000}
		s := open(t, dir, l)
		written, writers := make(map[Attempt][]byte), make(map[Attempt]*Writer)
		for range rapid.IntRange(1, 60).Draw(t, "writes") {
			a := Attempt{Job: 1, Index: rapid.Uint32Range(0, 3).Draw(t, "task"), Attempt: 1}
			if writers[a] == nil {
				writers[a] = s.Writer(a)
			}
			data := rapid.SliceOfN(rapid.ByteRange('a', 'z'), 1, 90).Draw(t, "data")
			if err := writers[a].Write(Stdout, data); err != nil {
				t.Fatal(err)
			}
			written[a] = append(written[a], data...)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			damageFile(t, filepath.Join(dir, e.Name()))
		}
		s = open(t, dir, l)
		for a, whole := range written {
			checkPieces(t, s, a, whole)
		}
		a := Attempt{Job: 2}
		w := s.Writer(a)
		if err := w.Write(Stdout, []byte("new")); err != nil {
			t.Fatal(err)
		}
		if got, err := text(s, a); got != "new" || err != nil {
			t.Fatalf("afterwards: got %q, %v", got, err)
		}
	})
}

// damageFile does to a file what a power failure may do.
func damageFile(t *rapid.T, path string) {
	b, err := os.ReadFile(path) //nolint:gosec // of the test
	if err != nil {
		t.Fatal(err)
	}
	at := rapid.IntRange(0, len(b)).Draw(t, "at")
	switch rapid.SampledFrom([]string{"none", "cut", "zeros", "garbage", "missing"}).Draw(t, "damage") {
	case "cut":
		b = b[:at]
	case "zeros":
		clear(b[at:min(len(b), at+rapid.IntRange(1, 512).Draw(t, "zeros"))])
	case "garbage":
		b = append(b[:at], rapid.SliceOf(rapid.Byte()).Draw(t, "garbage")...)
	case "missing":
		err = os.Remove(path)
		b = nil
	}
	if b != nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkPieces checks that what is read of an attempt was written there.
func checkPieces(t failer, s *Store, a Attempt, whole []byte) {
	t.Helper()
	next := uint64(0)
	err := s.Read(context.Background(), a, false, func(p Piece) error {
		if p.Offset < next || p.Offset+uint64(len(p.Data)) > uint64(len(whole)) || !bytes.HasPrefix(whole[p.Offset:], p.Data) {
			t.Fatal("got", string(p.Data), "at", p.Offset, "after", next, "of", string(whole))
		}
		next = p.Offset + uint64(len(p.Data))
		return nil
	}, nil)
	if err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, errDamaged) {
		t.Fatal(err)
	}
}

func FuzzASegmentWithAnyContentIsOpened(f *testing.F) {
	whole := appendRecord(nil, &record{of: Attempt{1, 0, 1}, stream: Stdout, data: []byte("text\n")})
	whole = appendRecord(whole, &record{of: Attempt{1, 0, 1}, stream: Stderr, offset: 5, before: position{1, 0}, data: []byte("more\n")})
	f.Add(whole, []byte(nil))
	f.Add(whole[:len(whole)-1], encodeIndex(map[Attempt]uint32{{1, 0, 1}: 58}, 1))
	f.Add(appendRecord(nil, &record{of: Attempt{1, 0, 1}, stream: Stdout, before: position{1, 0}}), []byte(nil)) // its own predecessor
	f.Fuzz(func(t *testing.T, segment, index []byte) {
		dir := t.TempDir()
		for path, b := range map[string][]byte{segmentPath(dir, 1): segment, strings.TrimSuffix(segmentPath(dir, 1), segmentSuffix) + indexSuffix: index} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, dir, Limits{})
		got, err := text(s, Attempt{1, 0, 1})
		if err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, errDamaged) {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}
