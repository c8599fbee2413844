package fsm

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The leader builds entries on its fork, and the followers apply them: both must
// reach the same state, and refused operations must change nothing.
func TestABuiltEntryHasTheSameEffectOnFollowers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		choose := drawn(t)
		follower := New()
		follower.Apply(Entry{Ops: []Op{worker(1), worker(2)}}, nil)
		leader, g := follower.Fork(), newGenerator(choose)
		for n := range 10 + choose(40) {
			fx := new(Effects)
			d := NewEntryBuilder(leader, int64(n), fx)
			for range choose(6) {
				if op := g.op(leader); choose.one(2) {
					propose(t, d, op)
				} else {
					d.Do(op)
				}
			}
			followed(t, d, follower, fx)
		}
	})
}

// propose adds an operation to an entry. A refused one must change nothing.
func propose(t *rapid.T, d *EntryBuilder, op Op) {
	d.closeList()
	before, items := rawSnapshot(t, d.s), d.Items()
	r := d.Do(op)
	d.closeList()
	if r != Accepted && d.Items() == items && !bytes.Equal(before, rawSnapshot(t, d.s)) {
		t.Fatalf("%T%v was refused (%v) but changed the state", op, op, r)
	}
}

func rawSnapshot(t *rapid.T, s *State) []byte {
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// followed finishes an entry, applies it on a follower, and compares both.
func followed(t *rapid.T, d *EntryBuilder, follower *State, fx *Effects) {
	e, digest, ok := d.Finish()
	if ok != (d.Items() > 0) {
		t.Fatalf("entry with %d items: got ok = %v", d.Items(), ok)
	}
	if ok {
		data := Encode(nil, e)
		if d.Size()+16 < len(data) {
			t.Fatalf("got %d bytes, estimated %d", len(data), d.Size())
		}
		got := new(Effects)
		if r := follower.Apply(mustDecode(t, data), got); r != Accepted {
			t.Fatalf("follower refused a built entry: %v: %s", r, describe(e.Ops))
		}
		if diff := cmp.Diff(fx, got); diff != "" {
			t.Fatalf("effects differ:\n%s", diff)
		}
	}
	if follower.Digest() != digest || d.s.Digest() != digest {
		t.Fatalf("digests: builder %#x, fork %#x, follower %#x", digest, d.s.Digest(), follower.Digest())
	}
	if !bytes.Equal(rawSnapshot(t, d.s), rawSnapshot(t, follower)) {
		t.Fatalf("snapshots of fork and follower differ after %s", describe(e.Ops))
	}
}

func TestAnEmptyEntryLeavesTheForkUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(diamond())
	before := snapshotOf(t, w.s)
	d := NewEntryBuilder(w.s, 12345, nil)
	if r := d.Assign(AssignItem(hold(1, 3, 1, 1))); r != WrongState {
		t.Fatalf("assigning a blocked task: got %v", r)
	}
	if r := d.Complete(CompleteItem{HeldAttempt: hold(1, 0, 1, 1)}); r != StaleAttempt {
		t.Fatalf("completing a pending task: got %v", r)
	}
	if _, _, ok := d.Finish(); ok {
		t.Fatal("refused operations made an entry")
	}
	if !bytes.Equal(before, snapshotOf(t, w.s)) {
		t.Fatal("the fork has changed")
	}
}

// Lists that were joined, or split by refused items, have the same digest as in
// the entry.
func TestSplitListsHaveTheSameDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil, nil, nil, nil, nil)
	for i := range p.tasks {
		p.tasks[i].policy = 1
	}
	p.onFailure = continueOnFailure
	w.submit(p)
	follower := w.s.Fork()
	d := NewEntryBuilder(w.s, 100, nil)
	h := func(i, attempt uint32) HeldAttempt { return hold(1, i, attempt, 1) }
	steps := []func(i uint32) Reason{
		func(i uint32) Reason { return d.Assign(AssignItem(h(i, 1))) },
		func(i uint32) Reason { return d.Fail(FailItem{HeldAttempt: h(i, 1), Next: NextRetry, Error: "exit 1"}) },
		func(i uint32) Reason { return d.Due(att(1, i, 1)) },
		func(i uint32) Reason { return d.Assign(AssignItem(h(i, 2))) },
		func(i uint32) Reason { return d.Requeue(h(i, 2), i%2 == 0) },
		func(i uint32) Reason { return d.Assign(AssignItem(h(i, 3))) },
		func(i uint32) Reason { return d.RecordStart(h(i, 3)) },
	}
	for _, step := range steps {
		for i := range uint32(6) {
			if r := step(i); r != Accepted {
				t.Fatal(r)
			}
			if step(99); i >= 3 {
				d.Lose(h(i, 99))
				d.Due(att(1, i, 99))
			}
		}
	}
	for i := range uint32(3) {
		// A size without a digest is not in the log, and must not be in the fork.
		if r := d.Complete(CompleteItem{HeldAttempt: h(i, 3), Result: make([]byte, i), OutputSize: 1 << 40}); r != Accepted {
			t.Fatal(r)
		}
	}
	for i := range uint32(3) {
		if r := d.Lose(h(3+i, 3)); r != Accepted {
			t.Fatal(r)
		}
	}
	e, _, _ := d.Finish()
	if r := follower.Apply(mustDecode(t, Encode(nil, e)), nil); r != Accepted {
		t.Fatal(r)
	}
	sameState(t, "follower", follower, w.s)
	if got := w.s.Result(ref(1, 0)); got.Error != "" {
		t.Errorf("completed task: got the error of an earlier attempt: %q", got.Error)
	}
}

// A list with a refused item must have the same effects in the fork and in the
// entry.
func TestTheBuilderKeepsTheAcceptedItemsOfAList(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1), worker(2), &MarkWorkerDown{ID: 1})
	w.submit(diamond())
	w.do(&CancelJob{Job: 1})
	follower := w.s.Fork()
	d := NewEntryBuilder(w.s, 50, nil)
	for _, op := range []Op{
		&ForgetKeys{Items: []string{"nobody's", "key-1"}},
		&Archive{Items: []JobID{7, 1}},
	} {
		if r := d.Do(op); r == Accepted {
			t.Errorf("%T: all items accepted", op)
		}
	}
	if d.Items() != 2 {
		t.Errorf("kept %d items, want 2", d.Items())
	}
	e, _, _ := d.Finish()
	if r := follower.Apply(e, nil); r != Accepted {
		t.Errorf("follower: %v", r)
	}
	sameState(t, "follower", follower, w.s)
}

// Replicas halt on a chunk that they cannot decode, so the builder must refuse it.
func TestAChunkThatCannotBeDecodedIsRefused(t *testing.T) {
	t.Parallel()
	p := diamond()
	for name, deps := range map[string][]uint32{"of itself": {0}, "of a later task": {5}, "descending": {1, 0}, "twice": {0, 0}} {
		w := newWorld(t)
		w.do(&BeginUpload{ID: 1, Key: "k", Header: p.header(), Total: 3})
		first := uint32(0)
		if len(deps) > 1 {
			b := NewChunkBuilder(0)
			b.Add("a", 0, nil, nil)
			b.Add("b", 0, nil, nil)
			w.do(&AddChunk{Job: 1, Chunk: b.Chunk()})
			first = 2
		}
		b := NewChunkBuilder(first)
		b.Add("x", 0, deps, nil)
		if r := NewEntryBuilder(w.s, 1, nil).Do(&AddChunk{Job: 1, Chunk: b.Chunk()}); r != Malformed {
			t.Errorf("dependency %s: %v, want %v", name, r, Malformed)
		}
	}
}
