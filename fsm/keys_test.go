package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestASlotIsALineOfMemory(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(keySlot{}); n != 64 {
		t.Errorf("%d bytes", n)
	}
}

// atOneHome are names of one shard, which belong to the same slot while it has up to
// 256.
func atOneHome(n int) (names []string) {
	const low = 1<<16 - 1
	want := hashOf("0") & low
	for i := 0; len(names) < n; i++ {
		if name := strconv.Itoa(i); hashOf(name)&low == want {
			names = append(names, name)
		}
	}
	return names
}

// The table is a map, and each fork of it one of its own.
func TestTheKeyTableIsAForkableMap(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(
		rapid.SampledFrom(atOneHome(3*maxProbes)),
		rapid.Map(rapid.IntRange(0, 60), func(i int) string { return fmt.Sprint("k", i) }),
		rapid.Map(rapid.IntRange(0, 20_000), func(i int) string { return fmt.Sprint("n", i) }),
	)
	type fork struct {
		own   *ownership
		table keys
		twin  map[string]key
	}
	same := func(rt *rapid.T, f *fork) {
		if f.table.n != len(f.twin) {
			rt.Fatalf("counts %d keys, want %d", f.table.n, len(f.twin))
		}
		got := make(map[string]key)
		for shard := range shardCount {
			for name, k := range f.table.scan(shard) {
				if _, twice := got[name]; twice || shardOf(name) != shard {
					rt.Fatalf("duplicate %q, or wrong shard %d", name, shard)
				}
				got[name] = k
			}
		}
		if !maps.Equal(got, f.twin) {
			rt.Fatalf("got %d keys %v, want %v", len(got), got, f.twin)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		forks := []*fork{{own: new(ownership), twin: make(map[string]key)}}
		for step := range rapid.IntRange(1, 300).Draw(rt, "steps") {
			f := forks[rapid.IntRange(0, len(forks)-1).Draw(rt, "fork")]
			name := names.Draw(rt, "name")
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1, 2:
				f.table.delete(f.own, name)
				delete(f.twin, name)
			case 3:
				if len(forks) < 4 {
					forks = append(forks, &fork{new(ownership), f.table, maps.Clone(f.twin)})
					f.own = new(ownership)
				}
			case 4:
				for i := range 50 { // so that shards grow
					more, k := fmt.Sprint("n", 50*step+i), key{job: JobID(step)} //nolint:gosec // few
					f.table.set(f.own, more, k)
					f.twin[more] = k
				}
			default:
				k := key{job: JobID(step), version: submittedVersion} //nolint:gosec // few
				f.table.set(f.own, name, k)
				f.twin[name] = k
			}
			got, ok := f.table.get(name)
			if want, there := f.twin[name]; ok != there || got != want {
				rt.Fatalf("%q: got %v %v, want %v %v", name, got, ok, want, there)
			}
		}
		for _, f := range forks {
			same(rt, f)
		}
	})
}

// Keys that share a shard are in several frames, and some of them in no slot.
func TestASnapshotHasAllKeysInOrder(t *testing.T) {
	t.Parallel()
	s := New()
	s.nextJob = 1 << 20
	for i, name := range append(atOneHome(3*maxProbes), manyKeys(2*keysPerFrame)...) {
		s.keys.set(s.own, name, key{job: JobID(i + 1), expires: int64(i), version: submittedVersion}) //nolint:gosec // few
	}
	if s.keys.shards[shardOf("0")].overflow == nil {
		t.Fatal("all keys are in slots")
	}
	written := snapshotOf(t, s)
	read, err := ReadSnapshot(bytes.NewReader(written))
	if err != nil {
		t.Fatal(err)
	}
	for shard := range shardCount {
		got, want := read.keys.appendSorted(nil, shard), s.keys.appendSorted(nil, shard)
		if !slices.EqualFunc(got, want, func(a, b namedKey) bool { return a.name == b.name && *a.key == *b.key }) {
			t.Errorf("shard %d has %d other keys than the %d written", shard, len(got), len(want))
		}
		if !slices.IsSortedFunc(want, func(a, b namedKey) int { return strings.Compare(a.name, b.name) }) {
			t.Errorf("shard %d is not sorted", shard)
		}
	}
	if again := snapshotOf(t, read); !bytes.Equal(again, written) {
		t.Error("it is written differently after it was read")
	}
}

// manyKeys returns names of the shard of "0".
func manyKeys(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("m", i); shardOf(name) == shardOf("0") {
			names = append(names, name)
		}
	}
	return names
}
