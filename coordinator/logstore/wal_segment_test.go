package logstore

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// frame returns a frame in raft-wal's format.
func frame(kind byte, value uint32, content []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte{kind, 0, 0, 0}, value)
	out = append(out, content...)
	return append(out, make([]byte, -len(out)&7)...)
}

// commit returns a batch with its commit frame.
func commit(batch []byte) []byte {
	return append(batch, frame(commitFrame, crc32.Checksum(batch, castagnoli), nil)...)
}

// firstBatch returns a segment with one batch of one entry.
func firstBatch(base uint64, data []byte) []byte {
	head := binary.LittleEndian.AppendUint64(nil, segmentMagic)
	head = binary.LittleEndian.AppendUint64(head, base)
	head = binary.LittleEndian.AppendUint64(head, 7)
	head = binary.LittleEndian.AppendUint64(head, 1)
	return commit(append(head, frame(entryFrame, uint32(len(data)), data)...))
}

func TestASegmentIsParsedAsWritten(t *testing.T) {
	t.Parallel()
	content := firstBatch(5, []byte("some data"))
	first := len(content)
	content = append(content, commit(append(frame(entryFrame, 3, []byte("abc")), frame(entryFrame, 0, nil)...))...)
	end := len(content)
	content = append(content, make([]byte, 300)...)
	s, err := parseSegment(content)
	if want := (segmentContent{segment: segmentID{base: 5, id: 7, codec: 1}, entries: 3, end: end}); err != nil || s != want {
		t.Errorf("got %+v, %v; want %+v", s, err, want)
	}
	for what, change := range map[string]func(content []byte){
		"a later batch is whole": func(content []byte) { content[first-4] ^= 1 },
		"a frame of no kind":     func(content []byte) { content[segmentHeader] = 9 },
		"a frame that is long":   func(content []byte) { content[segmentHeader+6] = 1 },
		"a magic":                func(content []byte) { content[0] = 0 },
		"a version":              func(content []byte) { content[7] = 1 },
	} {
		damaged := bytes.Clone(content)
		change(damaged)
		if s, err := parseSegment(damaged); err == nil {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

func TestTheIndexOfAFullSegmentIsVerified(t *testing.T) {
	t.Parallel()
	content := firstBatch(1, []byte("some data"))
	sealed := func(offsets ...uint32) []byte {
		var index []byte
		for _, o := range offsets {
			index = binary.LittleEndian.AppendUint32(index, o)
		}
		return append(bytes.Clone(content), commit(frame(indexFrame, uint32(len(index)), index))...)
	}
	if s, err := parseSegment(append(sealed(segmentHeader), make([]byte, 40)...)); err != nil || s.index != len(content)+frameHeader || s.entries != 1 || s.torn {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := parseSegment(sealed(segmentHeader + 8)); err == nil {
		t.Errorf("an index of another entry is accepted: %+v", s)
	}
	if s, err := parseSegment(sealed(segmentHeader, 40)); err != nil || s.end != len(content) || !s.torn {
		t.Errorf("an index of too many entries: %+v, %v", s, err)
	}
	if s, err := parseSegment(append(sealed(segmentHeader), 1)); err != nil || !s.torn {
		t.Errorf("data after its end: %+v, %v", s, err)
	}
}

// A torn segment is searched for batches; content that consists of frame headers must
// not take forever.
func TestASegmentOfFramesWithoutACommitIsParsedInBoundedTime(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat(frame(entryFrame, 0, nil), 1<<18)
	content = append(content, frame(commitFrame, 1, nil)...)
	if _, err := parseSegment(content); err == nil {
		t.Error("it counts as torn")
	}
}

// FuzzParseSegment parses arbitrary bytes: the segment is complete up to the reported
// end, and what follows does not change that.
func FuzzParseSegment(f *testing.F) {
	f.Add([]byte{})
	whole := firstBatch(1, []byte("abc"))
	f.Add(whole)
	f.Add(append(bytes.Clone(whole), commit(append(frame(entryFrame, 3, []byte("abc")), frame(entryFrame, 0, nil)...))...))
	f.Add(append(bytes.Clone(whole), commit(frame(indexFrame, 4, []byte{segmentHeader, 0, 0, 0}))...))
	f.Add(append(bytes.Clone(whole), frame(entryFrame, 3, []byte("abc"))...))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<20 {
			return
		}
		s, err := parseSegment(content)
		if s.end < 0 || s.end > len(content) || s.end%frameHeader != 0 || s.index > s.end || s.entries > 0 != (s.end > 0) {
			t.Fatalf("%d bytes: %+v, %v", len(content), s, err)
		}
		again, err := parseSegment(append(bytes.Clone(content[:s.end]), make([]byte, 100)...))
		if again.torn = s.torn; err != nil || again != s {
			t.Fatalf("the complete part: %+v, %v; was %+v", again, err, s)
		}
		if s.index > 0 {
			return
		}
		next := commit(frame(entryFrame, 3, []byte("abc")))
		if s.end == 0 {
			next = firstBatch(1, []byte("abc"))
		}
		longer, err := parseSegment(append(bytes.Clone(content[:s.end]), next...))
		if err != nil || longer.entries != s.entries+1 || longer.torn {
			t.Fatalf("with another batch: %+v, %v; was %+v", longer, err, s)
		}
	})
}

// FuzzInspectSegments changes the last segment and the mark arbitrarily: the directory
// is refused as damaged, or opened with a prefix of its entries.
func FuzzInspectSegments(f *testing.F) {
	f.Add(uint16(0), []byte{}, uint16(0), []byte{})
	f.Add(uint16(40), []byte{1}, uint16(300), []byte{0, 0, 0})
	f.Add(uint16(8), []byte("xxxxxxxx"), uint16(9), []byte{255})
	dir := f.TempDir()
	s, _, err := openSegments(dir)
	if err != nil {
		f.Fatal(err)
	}
	const count = 12
	for i := range uint64(count) {
		if err := s.StoreLog(sized(i+1, int((i+1)*37%250))); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*"+segmentSuffix))
	if err != nil || len(segments) != 1 {
		f.Fatal(segments, err)
	}
	content, err := os.ReadFile(segments[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at uint16, with []byte, cut uint16, note []byte) {
		image := t.TempDir()
		if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		changed := append(bytes.Clone(content[:min(int(at), len(content))]), with...)
		if len(changed) < len(content) {
			changed = append(changed, content[len(changed):]...)
		}
		changed = changed[:len(changed)-min(int(cut), len(changed))]
		if err := os.WriteFile(filepath.Join(image, segmentsDir, filepath.Base(segments[0])), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if len(note) > 0 {
			if err := os.WriteFile(filepath.Join(image, segmentsDir, markName), note, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		state, err := Inspect(image)
		if err != nil {
			return
		}
		if state.Last > count {
			return // entries of the fuzzer's own
		}
		if err := whole(image, state.Last); err != nil {
			t.Fatal(err)
		}
	})
}
