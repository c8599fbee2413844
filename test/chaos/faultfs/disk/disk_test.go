package disk

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// do executes an operation that must succeed.
func do(t *testing.T, d *Disk, op Op) ID {
	t.Helper()
	id, errno := d.Apply(op)
	if errno != 0 {
		t.Fatalf("%+v: %v", op, errno)
	}
	return id
}

// content returns the contents of a path; nil if the file does not exist.
func content(t *testing.T, d *Disk, path string) []byte {
	t.Helper()
	id, err := d.Find(path)
	if err != nil {
		return nil
	}
	info, _ := d.Stat(id)
	into := make([]byte, info.Size)
	n, _ := d.ReadAt(id, into, 0)
	return into[:n]
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func TestARecordedHistoryCanBeReplayed(t *testing.T) {
	t.Parallel()
	d := New()
	d.Record(true)
	dir := do(t, d, Op{Kind: Mkdir, Dir: Root, Name: "d"})
	file := do(t, d, Op{Kind: Create, Dir: dir, Name: "f"})
	do(t, d, Op{Kind: Write, ID: file, Offset: 100, Data: []byte("hello")})
	do(t, d, Op{Kind: Truncate, ID: file, Offset: 103})
	do(t, d, Op{Kind: Rename, Dir: dir, Name: "f", ToDir: Root, ToName: "g"})
	do(t, d, Op{Kind: Sync, ID: file, UpTo: d.LastChange()})
	do(t, d, Op{Kind: Sync, ID: Root, UpTo: d.LastChange()})
	do(t, d, Op{Kind: Mark, Name: "here"})

	var stored bytes.Buffer
	if err := WriteOps(&stored, d.History()); err != nil {
		t.Fatal(err)
	}
	ops, err := ReadOps(&stored)
	if err != nil || len(ops) != 8 {
		t.Fatalf("got %d operations, %v; want 8", len(ops), err)
	}
	for seed := range uint64(10) {
		again := Replay(ops)
		again.Cut(random(seed))
		if got := content(t, again, "g"); !bytes.Equal(got, append(make([]byte, 100), "hel"...)) {
			t.Errorf("seed %d: got contents %q of g", seed, got)
		}
		if got := Replay(ops[:5]).Files(); len(got) != 1 || got[0] != "g" {
			t.Errorf("after five operations: got files %v, want g", got)
		}
	}
}

func TestASyncCoversOnlyEarlierChanges(t *testing.T) {
	t.Parallel()
	lost := 0
	for seed := range uint64(40) {
		d := New()
		file := do(t, d, Op{Kind: Create, Dir: Root, Name: "f"})
		do(t, d, Op{Kind: Sync, ID: Root, UpTo: d.LastChange()})
		do(t, d, Op{Kind: Write, ID: file, Data: []byte("a")})
		begun := d.LastChange()
		do(t, d, Op{Kind: Write, ID: file, Offset: 1, Data: []byte("b")})
		do(t, d, Op{Kind: Sync, ID: file, UpTo: begun})
		d.Cut(random(seed))
		got := string(content(t, d, "f"))
		if got == "" || got[0] != 'a' {
			t.Fatalf("seed %d: got synced contents %q", seed, got)
		}
		if got == "a" {
			lost++
		}
	}
	if lost == 0 || lost == 40 {
		t.Errorf("the write during the sync was lost %d times of 40, want at least once", lost)
	}
}

func TestASyncedFileMayVanishUntilItsDirectoryIsSynced(t *testing.T) {
	t.Parallel()
	gone := 0
	for seed := range uint64(40) {
		d := New()
		file := do(t, d, Op{Kind: Create, Dir: Root, Name: "f"})
		do(t, d, Op{Kind: Write, ID: file, Data: []byte("a")})
		do(t, d, Op{Kind: Sync, ID: file, UpTo: d.LastChange()})
		d.Cut(random(seed))
		if len(d.Files()) == 0 {
			gone++
		} else if got := string(content(t, d, "f")); got != "a" {
			t.Errorf("seed %d: got contents %q", seed, got)
		}
	}
	if gone == 0 || gone == 40 {
		t.Errorf("the file was lost %d times of 40, want at least once", gone)
	}
}

func TestATornWriteLosesOnlyItsEnd(t *testing.T) {
	t.Parallel()
	d := New()
	file := do(t, d, Op{Kind: Create, Dir: Root, Name: "f"})
	do(t, d, Op{Kind: Write, ID: file, Data: bytes.Repeat([]byte("m"), 4096)})
	do(t, d, Op{Kind: Write, ID: file, Offset: 4096, Data: bytes.Repeat([]byte("p"), 4096)})
	do(t, d, Op{Kind: Write, ID: file, Data: bytes.Repeat([]byte("n"), 4096)})
	from, err := d.TearLast(file, 4096, random(3))
	if err != nil || from <= 4096 || from >= 8192 || from%512 != 0 {
		t.Fatalf("torn at %d, %v", from, err)
	}
	got := content(t, d, "f")
	for i, b := range got {
		want := byte('n')
		if i >= 4096 {
			want = 'p'
		}
		if int64(i) >= from {
			want = 0
		}
		if b != want {
			t.Fatalf("byte %d: got %q, want %q", i, b, want)
		}
	}
	if _, err := d.TearLast(file, 1<<20, random(3)); err == nil {
		t.Error("tearing a missing write: got no error")
	}
}

func TestRemovingFilesFreesSpace(t *testing.T) {
	t.Parallel()
	d := New()
	file := do(t, d, Op{Kind: Create, Dir: Root, Name: "f"})
	do(t, d, Op{Kind: Truncate, ID: file, Offset: 1 << 20})
	if d.Used() != 0 {
		t.Errorf("a hole uses %d bytes", d.Used())
	}
	do(t, d, Op{Kind: Write, ID: file, Offset: 4000, Data: make([]byte, 200)})
	if d.Used() != 8192 {
		t.Errorf("a write over two blocks uses %d bytes", d.Used())
	}
	if need := d.Needs(file, 4000, 10_000); need != 8192 {
		t.Errorf("a write over four blocks needs %d more", need)
	}
	do(t, d, Op{Kind: Unlink, Dir: Root, Name: "f"})
	if d.Used() != 0 {
		t.Errorf("removed files use %d bytes", d.Used())
	}
}
