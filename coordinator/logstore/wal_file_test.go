package logstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	walfs "github.com/hashicorp/raft-wal/fs"
	"pgregory.net/rapid"
)

// newSegment creates a segment in the same way as raft-wal.
func newSegment(t *testing.T, dir string, size uint64) *segmentFile {
	t.Helper()
	files := &segmentFiles{FS: walfs.New(), list: &segmentList{}}
	file, err := files.Create(dir, "new.wal", size)
	if err != nil {
		t.Fatal(err)
	}
	segment, ok := file.(*segmentFile)
	if !ok {
		t.Fatalf("a segment is written through a %T", file)
	}
	t.Cleanup(func() { _ = segment.Close() })
	return segment
}

func TestASegmentHasTheAppendedBytesAndZerosAfterThem(t *testing.T) {
	t.Parallel()
	folder := t.TempDir
	rapid.Check(t, func(t *rapid.T) {
		dir := folder()
		files := &segmentFiles{FS: walfs.New(), list: &segmentList{}}
		const size = 2 * prezeroSize
		file, err := files.Create(dir, "new.wal", size)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 { // the replica was started again
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
				if file, err = files.OpenWriter(dir, "new.wal"); err != nil {
					t.Fatal(err)
				}
			}
			batch := bytes.Repeat([]byte{byte(len(want)) | 1}, rapid.IntRange(1, 2*maxPrezeroedBatch).Draw(t, "bytes"))
			if n, err := file.WriteAt(batch, int64(len(want))); n != len(batch) || err != nil {
				t.Fatalf("%d of %d bytes: %v", n, len(batch), err)
			}
			if err := file.Sync(); err != nil {
				t.Fatal(err)
			}
			want = append(want, batch...)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(dir, "new.wal"))
		switch {
		case err != nil:
			t.Fatal(err)
		case len(have) != max(size, len(want)):
			t.Fatalf("the segment has %d bytes; it was created with %d, and %d were appended", len(have), size, len(want))
		case !bytes.Equal(have[:len(want)], want):
			t.Fatal("the segment differs from the appended bytes")
		case !allZeros(have[len(want):]):
			t.Fatal("there is data after the end")
		}
	})
}

func TestASegmentIsPrezeroedOnceAndForSmallBatchesOnly(t *testing.T) {
	t.Parallel()
	segment := newSegment(t, t.TempDir(), 4*prezeroSize)
	at := int64(0)
	write := func(size int) {
		t.Helper()
		if _, err := segment.WriteAt(make([]byte, size), at); err != nil {
			t.Fatal(err)
		}
		at += int64(size)
	}
	write(100)
	if want := at + prezeroSize; segment.written != want {
		t.Fatalf("zeros end at %d, want %d", segment.written, want)
	}
	before := segment.written
	write(100)
	if segment.written != before {
		t.Errorf("zeros were written again up to %d; they ended at %d", segment.written, before)
	}
	at = before
	write(maxPrezeroedBatch)
	if segment.written != before {
		t.Errorf("a large batch is followed by zeros up to %d", segment.written)
	}
	at = segment.size - 10
	write(10)
	if segment.written > segment.size {
		t.Errorf("zeros end at %d, the segment has %d bytes", segment.written, segment.size)
	}
}

// full is a file on a full disk.
type full struct{ left int }

func (f *full) WriteAt(p []byte, _ int64) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestZerosThatDoNotFitAreOmitted(t *testing.T) {
	t.Parallel()
	disk := &full{left: 1000}
	if end := prezero(disk, 50, 4*prezeroSize); end != 1050 {
		t.Errorf("zeros end at %d, want 1050", end)
	}
	if end := prezero(disk, 1050, 4*prezeroSize); end != 1050 {
		t.Errorf("zeros end at %d although the disk is full", end)
	}
	if end := prezero(disk, 70, 60); end != 70 {
		t.Errorf("zeros end at %d, after the end of the segment", end)
	}
}

func TestAPrezeroedSegmentOpensAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustSegments(t, dir)
	for index := uint64(1); index <= 3; index++ {
		if err := s.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte("small")}); err != nil {
			t.Fatal(err)
		}
	}
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	after := mustSegments(t, killed)
	for index := uint64(1); index <= 4; index++ {
		var log raft.Log
		err := after.GetLog(index, &log)
		if index == 4 && !errors.Is(err, raft.ErrLogNotFound) || index < 4 && (err != nil || string(log.Data) != "small") {
			t.Errorf("entry %d: %q, %v", index, log.Data, err)
		}
	}
	if err := after.StoreLog(&raft.Log{Index: 4, Term: 1, Data: []byte("next")}); err != nil {
		t.Error(err)
	}
}
