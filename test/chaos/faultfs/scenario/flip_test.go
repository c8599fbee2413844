package scenario

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/test/boltpages"
	"github.com/dtask/dtask/test/chaos/faultfs"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// flipped is a flipped bit.
type flipped struct {
	kind    string
	victim  *cluster.Coordinator
	path    string // on the disk
	bit     int64
	running bool   // the replica was running
	around  []byte // the bytes around it, flipped; none if they were written meanwhile
}

// vicinity is the number of bytes on both sides of a bit that are compared to find
// out whether the bit is still there.
const vicinity = 32

// nearest is the number of bytes on both sides that show whether the bit was copied.
const nearest = 8

// flip flips a bit of a replica and leaves the replica as it was: running or killed.
func (r *rig) flip(t *testing.T, victim *cluster.Coordinator, running bool) *flipped {
	t.Helper()
	if !running {
		clustertest.Must(t, victim.Kill())
		clustertest.Must(t, r.disk(victim).Save("whole"))
	}
	f := &flipped{kind: "F45", victim: victim, path: dbPath, bit: -1, running: running}
	if r.random.IntN(3) == 0 {
		if name := r.snapshotFile(t, victim); name != "" {
			f.kind, f.path = "F46", name
		}
	}
	log, onDisk, err := logFile(r.disk(victim), victim)
	clustertest.Must(t, err)
	switch {
	case f.kind == "F45" && onDisk != dbPath && r.random.IntN(4) > 0:
		f.path = onDisk
		f.bit, err = faultfs.UsedBit(log, r.random)
		clustertest.Must(t, err)
	case f.kind == "F45" && !running && r.random.IntN(4) > 0:
		f.bit = r.usedBit(t, victim)
	}
	err = r.toggle(f)
	if errors.Is(err, fs.ErrNotExist) || err != nil && f.kind == "F46" { // the snapshot was removed meanwhile
		f.kind, f.path, f.bit = "F45", dbPath, -1
		err = r.toggle(f)
	}
	clustertest.Must(t, err)
	return f
}

// toggle flips a bit, a random one if none is chosen yet, and keeps the bytes around it. If
// a running replica writes there at the same time, they are its own, and flipping the bit
// back would damage them.
func (r *rig) toggle(f *flipped) error {
	if f.bit < 0 {
		about, err := os.Stat(filepath.Join(r.disk(f.victim).Dir, f.path))
		if err != nil {
			return err
		}
		f.bit = r.random.Int64N(max(1, 8*about.Size()))
	}
	before, err := r.bytesAround(f)
	if err != nil {
		return err
	}
	if _, err := r.disk(f.victim).Flip(f.path, f.bit, 0); err != nil {
		return err
	}
	after, err := r.bytesAround(f)
	if f.isBetween(before, after) {
		f.around = after
	}
	return err
}

// isBetween reports whether the bytes around a bit differ in this bit only.
func (f *flipped) isBetween(before, after []byte) bool {
	at := int(f.bit/8 - f.start())
	if at >= len(before) {
		return false
	}
	flipped := bytes.Clone(before)
	flipped[at] ^= 1 << (f.bit % 8)
	return bytes.Equal(flipped, after)
}

func TestABitIsFlippedIfNothingElseHasChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		want          bool
	}{
		"the bit":                {"abcd", "abcf", true},
		"nothing":                {"abcd", "abcd", false},
		"other bytes":            {"abcd", "xyzf", false},
		"the file was removed":   {"abcd", "", false},
		"it was removed earlier": {"", "", false},
	} {
		if got := (&flipped{bit: 3*8 + 1}).isBetween([]byte(c.before), []byte(c.after)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if f := (&flipped{bit: 100*8 + 7}); !f.isBetween(make([]byte, 2*vicinity), append(append(make([]byte, vicinity), 0x80), make([]byte, vicinity-1)...)) {
		t.Error("a bit far from the beginning of its file is not found")
	}
}

// snapshotFile returns a file of a snapshot, as a path on the disk; "" if missing.
func (r *rig) snapshotFile(t *testing.T, n *cluster.Coordinator) string {
	t.Helper()
	all := append(snapshotFiles(n, "state.bin"), snapshotFiles(n, "meta.json")...)
	if len(all) == 0 {
		return ""
	}
	onDisk, err := filepath.Rel(r.disk(n).Dir, all[r.random.IntN(len(all))])
	clustertest.Must(t, err)
	return onDisk
}

// usedBit returns a bit in a used page of the store. Most pages are free, and their
// contents have no effect.
func (r *rig) usedBit(t *testing.T, n *cluster.Coordinator) int64 {
	t.Helper()
	used := boltpages.Used(t, filepath.Join(n.DataDir, store))
	page := used[r.random.IntN(len(used))]
	return page*boltpages.Size*8 + r.random.Int64N(boltpages.Size*8)
}

// isCopied reports whether the contents of a store have the bytes next to a flipped bit more
// than once. A change of a page writes all of it to another one, with the bit, and frees the
// old one: flipping the bit back there repairs nothing. The headers of a page differ in a copy,
// so only the nearest bytes are compared.
func (f *flipped) isCopied(contents []byte) bool {
	at := int(f.bit/8 - f.start())
	near := f.around[max(0, at-nearest):min(len(f.around), at+nearest+1)]
	return f.path == dbPath && bytes.Count(contents, near) > 1
}

func TestABitIsCopiedWithTheBytesNextToIt(t *testing.T) {
	t.Parallel()
	page := func(header string) string { return header + "12345678901234567890.abcdefghijklmnopqrst" }
	for name, c := range map[string]struct {
		path, contents string
		want           bool
	}{
		"alone":               {dbPath, page("one"), false},
		"in another page":     {dbPath, page("one") + page("two"), true},
		"in a log of another": {"wal", page("one") + page("two"), false},
	} {
		f := &flipped{path: c.path, bit: int64(len("one12345678901234567890")) * 8, around: []byte(page("one"))}
		if got := f.isCopied([]byte(c.contents)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// start returns the offset of the bytes around a bit.
func (f *flipped) start() int64 { return max(0, f.bit/8-vicinity) }

// bytesAround returns the current bytes around a flipped bit; none if the file was
// removed.
func (r *rig) bytesAround(f *flipped) ([]byte, error) {
	file, err := os.Open(filepath.Join(r.disk(f.victim).Dir, f.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	around := make([]byte, 2*vicinity)
	n, err := file.ReadAt(around, f.start())
	if n > 0 {
		err = nil // near the end of the file
	}
	return around[:n], errors.Join(err, file.Close())
}

// isIn reports whether the flipped bit is in the current bytes around it. It isn't in those of a
// file that was removed, also if that was before its bytes were first read.
func (f *flipped) isIn(now []byte) bool { return now != nil && bytes.Equal(now, f.around) }

func TestABitIsNotInAFileThatWasRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		around, now []byte
		want        bool
	}{
		"in its place":                  {[]byte("abc"), []byte("abc"), true},
		"overwritten":                   {[]byte("abc"), []byte("abd"), false},
		"removed":                       {[]byte("abc"), nil, false},
		"removed before the first read": {nil, nil, false},
	} {
		if got := (&flipped{around: c.around}).isIn(c.now); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
