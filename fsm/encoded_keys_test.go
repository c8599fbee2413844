package fsm

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
)

// withKeys is a state with keys in several frames of one shard, and in others.
func withKeys(t *testing.T) (s *State, names []string) {
	t.Helper()
	s = New()
	s.nextJob = 1 << 20
	names = manyKeys(2*keysPerFrame + 7)
	for i := range 500 {
		names = append(names, fmt.Sprint("other", i))
	}
	for i, name := range names {
		s.keys.set(s.own, name, key{job: JobID(i + 1), expires: int64(i), version: submittedVersion}) //nolint:gosec // few
	}
	return s, names
}

// toRewrite reads a state to write it again.
func toRewrite(t *testing.T, snapshot []byte) *State {
	t.Helper()
	s, err := readSnapshot(bytes.NewReader(snapshot), MaxLevel, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAStateThatIsReadToBeRewrittenIsWrittenAsItWas(t *testing.T) {
	t.Parallel()
	many, names := withKeys(t)
	for name, s := range map[string]*State{"many keys": many, "a bit of all": restored(t, snapshotOf(t, populated(t))), "nothing": New()} {
		written := snapshotOf(t, s)
		read := toRewrite(t, written)
		if read.keys.shards != nil || read.keys.n != s.keys.n {
			t.Errorf("%s: %d keys, want %d, all of them encoded", name, read.keys.n, s.keys.n)
		}
		if again := snapshotOf(t, read); !bytes.Equal(again, written) {
			t.Errorf("%s: it is written differently", name)
		}
	}
	read := toRewrite(t, snapshotOf(t, many))
	for _, name := range names {
		got, ok := read.keys.get(name)
		if want, _ := many.keys.get(name); !ok || got != want {
			t.Fatalf("%q: got %v %v, want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "0", "unknown", names[0] + "x"} {
		if got, ok := read.keys.get(name); ok {
			t.Errorf("%q: got %v", name, got)
		}
	}
	found := make(map[string]key)
	for shard := range shardCount {
		for name, k := range read.keys.scan(shard) {
			if found[name] = k; shardOf(name) != shard {
				t.Errorf("%q is in shard %d", name, shard)
			}
		}
	}
	if len(found) != len(names) {
		t.Errorf("scanned %d keys, want %d", len(found), len(names))
	}
}

func TestAChangeOfAnEncodedKeyKeepsAllOthers(t *testing.T) {
	t.Parallel()
	s, names := withKeys(t)
	written := snapshotOf(t, s)
	for what, change := range map[string]func(*State){
		"set":     func(s *State) { s.keys.set(s.own, "new", key{job: 3, version: submittedVersion}) },
		"replace": func(s *State) { s.keys.set(s.own, names[5], key{job: 3, version: submittedVersion}) },
		"delete":  func(s *State) { s.keys.delete(s.own, names[5]) },
	} {
		want, got := restored(t, written), toRewrite(t, written)
		fork := got.Fork()
		change(want)
		change(got)
		sameState(t, what, got, want)
		if got.keys.n != want.keys.n {
			t.Errorf("%s: counts %d keys, want %d", what, got.keys.n, want.keys.n)
		}
		if !bytes.Equal(snapshotOf(t, fork), written) {
			t.Errorf("%s: a fork has changed", what)
		}
	}
}

// Frames in another order may have a key twice, which only tables find.
func TestEncodedKeysInAnotherOrderBecomeTables(t *testing.T) {
	t.Parallel()
	s, names := withKeys(t)
	frames := toRewrite(t, snapshotOf(t, s)).keys.encoded.frames
	reversed := slices.Clone(frames)
	slices.Reverse(reversed)
	for what, order := range map[string][]encodedFrame{"reversed": reversed, "twice": append(slices.Clone(frames), frames...)} {
		f := frameReader{s: New(), rewritten: true}
		for _, frame := range order {
			d := &decoder{b: frame.contents}
			if f.keys(d); d.done() != nil {
				t.Fatal(d.done())
			}
		}
		if got := &f.s.keys; got.encoded != nil || got.n != len(names) {
			t.Errorf("%s: %d keys, want tables with %d", what, got.n, len(names))
		}
	}
}

func TestAStateToRewriteIsCheckedLikeAnyOther(t *testing.T) {
	t.Parallel()
	s, _ := withKeys(t)
	written := snapshotOf(t, s)
	s.keys.set(s.own, "of no upload", key{job: 9})
	wrong := snapshotOf(t, s)
	for what, b := range map[string][]byte{"a key of a missing upload": wrong, "cut": written[:len(written)-1], "changed": append(bytes.Clone(written[:len(written)/2]), make([]byte, len(written)-len(written)/2)...)} {
		m := NewMachine()
		if err := m.RestoreToRewrite(io.MultiReader(bytes.NewReader(make([]byte, 8)), bytes.NewReader(b))); err == nil {
			t.Errorf("%s: it was read", what)
		}
	}
}
