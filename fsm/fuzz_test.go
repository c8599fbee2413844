package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// populated is a state in which most operations find something to change.
func populated(tb testing.TB) *State {
	tb.Helper()
	s := New()
	for _, e := range goldenLog() {
		s.Apply(e, nil)
	}
	g := newGenerator(seeded(3))
	for n := range 150 {
		s.Apply(Entry{NowMS: int64(n), Ops: g.ops(s)}, nil)
	}
	if err := s.Check(); err != nil {
		tb.Fatal(err)
	}
	return s
}

// allocated returns the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Any input decodes to an entry or an error. An entry is applied or rejected, nothing
// panics, and the invariants hold.
func FuzzDecodeEntry(f *testing.F) {
	base := populated(f)
	for _, op := range examples() {
		f.Add(Encode(nil, Entry{NowMS: 1, Ops: []Op{op}}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Entry
		var err error
		if n := allocated(func() { e, err = Decode(data) }); n > uint64(64*len(data)+64<<10) {
			t.Fatalf("decoding %d bytes allocated %d", len(data), n)
		}
		if err != nil {
			return
		}
		a, b := base.Fork(), base.Fork()
		a.Apply(e, nil)
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		data = Encode(nil, e)
		e, err = Decode(data)
		if err != nil {
			t.Fatalf("decoding the encoded entry: %v", err)
		}
		if !bytes.Equal(Encode(nil, e), data) {
			t.Fatal("encoding again changes the bytes")
		}
		b.Apply(e, nil)
		sameState(t, "the same entry again", b, a)
		sameState(t, "after a restore", restored(t, snapshotOf(t, a)), a)
	})
}

// repaired returns the snapshot with correct checksums.
func repaired(data []byte) []byte {
	data = bytes.Clone(data)
	for at := len(snapshotMagic); at+9 <= len(data); {
		end := at + 5 + int(binary.LittleEndian.Uint32(data[at+1:]))
		if end+4 > len(data) || end < at {
			break
		}
		binary.LittleEndian.PutUint32(data[end:], crc32.Checksum(data[at:end], castagnoli))
		at = end + 4
	}
	return data
}

// Any input is a valid state or an error.
func FuzzReadSnapshot(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		tryRestore(t, data)
		tryRestore(t, repaired(data))
	})
}

// tryRestore reads a snapshot and, if it is valid, continues with its state.
func tryRestore(t *testing.T, data []byte) {
	t.Helper()
	var s *State
	var err error
	if n := allocated(func() { s, err = ReadSnapshot(bytes.NewReader(data)) }); n > uint64(256*len(data)+1<<20) {
		t.Fatalf("reading %d bytes allocated %d", len(data), n)
	}
	if err != nil {
		if s != nil {
			t.Fatal("got a state with an error")
		}
		return
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	sameState(t, "read again", restored(t, snapshotOf(t, s)), s)
	g := newGenerator(seeded(uint64(len(data))))
	for n := range 30 {
		s.Apply(Entry{NowMS: int64(n), Ops: g.ops(s)}, nil)
		if err := s.Check(); err != nil {
			t.Fatalf("after %d entries: %v", n, err)
		}
		for j := range s.Jobs(0) {
			for i := range min(j.Total, 20) {
				s.Result(ref(j.ID, i))
				s.History(ref(j.ID, i))
				s.Dependencies(ref(j.ID, i))
			}
		}
	}
	restored(t, snapshotOf(t, s))
}

// framed builds a snapshot from frames that are written as kind, length (2 bytes),
// contents. Changes keep the framing valid, so that a fuzzer changes the contents.
func framed(data []byte) []byte {
	var b bytes.Buffer
	var w frameWriter
	w.begin(&b, snapshotMagic)
	for len(data) >= 3 {
		n := min(int(binary.LittleEndian.Uint16(data[1:])), len(data)-3)
		if kind := frameKind(data[0]); kind != frameEnd {
			w.e.b = append(w.e.b, data[3:3+n]...)
			w.frame(kind)
		}
		data = data[3+n:]
	}
	w.end(New())
	if err := w.finish(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// unframed is the inverse of framed.
func unframed(snapshot []byte) []byte {
	var data []byte
	for rest := snapshot[len(snapshotMagic):]; len(rest) > 0; {
		n := int(binary.LittleEndian.Uint32(rest[1:]))
		data = append(data, rest[0], byte(n), byte(n>>8))
		data = append(data, rest[5:5+n]...)
		rest = rest[9+n:]
	}
	return data
}

// The same with valid frames.
func FuzzReadFrames(f *testing.F) {
	s := New()
	for n, e := range goldenLog() {
		s.Apply(e, nil)
		data := unframed(snapshotOf(f, s))
		if n > 6 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { tryRestore(t, framed(data)) })
}

// Every changed byte and every missing byte is detected.
func TestADamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(filepath.Join("testdata", "snapshot_v3.bin"))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine()
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 0x40
		for what, data := range map[string][]byte{"changed": bad, "cut": whole[:i]} {
			if _, err := ReadSnapshot(bytes.NewReader(data)); err == nil {
				t.Errorf("byte %d %s: got no error", i, what)
			}
			if err := m.Restore(bytes.NewReader(append(make([]byte, 8), data...))); err == nil || m.Index() != 0 {
				t.Errorf("byte %d %s: restored", i, what)
			}
		}
	}
	if _, err := ReadSnapshot(bytes.NewReader(append(whole, 0))); err == nil {
		t.Error("a snapshot with trailing data: got no error")
	}
}

// With an empty page of records, adding the next chunk would never end.
func TestASnapshotWithAnEmptyPageIsRefused(t *testing.T) {
	t.Parallel()
	s := New()
	for _, op := range diamond().submit(1, "k", 2)[:2] {
		s.Apply(Entry{Ops: []Op{op}}, nil)
	}
	j := s.jobs.get(1)
	j.records.pages = append(j.records.pages, new(page))
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSnapshot(&b); err == nil {
		t.Error("got no error")
	}
}

func TestAnUnknownEntryHaltsAndADamagedOneIsAnError(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"older":        {1},
		"newer":        {entryVersion + 1},
		"operation":    {entryVersion, 0, 0, 1, byte(len(operations))},
		"no operation": {entryVersion, 0, 0, 1, 0},
		"field":        Encode(nil, Entry{Ops: []Op{&Complete{Items: []CompleteItem{{}}}}}),
	} {
		if name == "field" {
			data[len(data)-1] = completeFlags
		}
		m := NewMachine()
		var halt *HaltError
		var unknown *UnknownError
		err, _ := m.Apply(7, data).(error)
		if !errors.As(err, &halt) || halt.Index != 7 || !errors.As(err, &unknown) {
			t.Errorf("unknown %s: %v", name, err)
		}
		if m.Index() != 0 {
			t.Errorf("unknown %s: applied", name)
		}
	}
	for _, op := range examples() {
		whole := Encode(nil, Entry{Ops: []Op{op}})
		for i := range whole {
			if _, err := Decode(whole[:i]); err == nil {
				t.Errorf("%T cut at %d: got no error", op, i)
			}
		}
		if _, err := Decode(append(whole, 0)); err == nil {
			t.Errorf("%T with an extra byte: got no error", op)
		}
	}
}
