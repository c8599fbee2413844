package fsm

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// Positions of notes are part of the digest, and must not depend on the number of
// forks or restores of a replica.
func TestForksAndRestoresKeepThePositionsOfNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(fan(10))
	plain, forked, reread := w.s.Fork(), w.s.Fork(), w.s.Fork()
	for i := range uint32(11) {
		h := hold(1, i, 1, 1)
		e := Entry{Ops: []Op{
			&Assign{Items: []AssignItem{AssignItem(h)}},
			&Complete{Items: []CompleteItem{{HeldAttempt: h, Result: bytes.Repeat([]byte{byte(i)}, int(i)*100)}}},
		}}
		forked.Fork()
		reread = restored(t, snapshotOf(t, reread))
		for _, s := range []*State{plain, forked, reread} {
			if r := s.Apply(e, nil); r != Accepted {
				t.Fatal(r)
			}
		}
		sameState(t, "forked", forked, plain)
		sameState(t, "restored", reread, plain)
	}
	for i := range uint32(11) {
		if got := reread.Result(ref(1, i)).Data; !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, int(i)*100)) {
			t.Errorf("result %d: %v", i, got)
		}
	}
}

func TestAReasonForManyTasksIsStoredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(fan(500))
	w.do(&CancelJob{Job: 1, Reason: "not needed"})
	if n := w.s.jobs.get(1).notes.size; n > 20 {
		t.Errorf("notes use %d bytes", n)
	}
	for i := range uint32(502) {
		if got := w.s.Result(ref(1, i)).Error; got != "not needed" {
			t.Fatalf("task %d: %q", i, got)
		}
	}
}

func TestNotesAreFoundInEveryChunk(t *testing.T) {
	t.Parallel()
	var n notes
	var at []uint32
	own := new(ownership)
	for i := range 400 {
		if i%37 == 0 {
			own = new(ownership) // as after a fork
		}
		at = append(at, n.add(own, noteError, bytes.Repeat([]byte{byte(i)}, i*7%5000), []byte{byte(i)}))
	}
	var back notes
	for frame := range n.frames {
		if len(frame) > noteSize {
			t.Errorf("got a frame of %d bytes", len(frame))
		}
		if err := back.restore(bytes.Clone(frame)); err != nil {
			t.Fatal(err)
		}
	}
	if back.size != n.size || back.last != n.last {
		t.Errorf("restored: got %d bytes up to %d, want %d up to %d", back.size, back.last, n.size, n.last)
	}
	for i, note := range at {
		want := append(bytes.Repeat([]byte{byte(i)}, i*7%5000), byte(i))
		for name, from := range map[string]*notes{"written": &n, "restored": &back} {
			if kind, got := from.get(note); kind != noteError || !bytes.Equal(got, want) {
				t.Errorf("%s note %d: got kind %d with %d bytes, want %d", name, i, kind, len(got), len(want))
			}
		}
	}
}

// Positions have 32 bits: notes beyond them are dropped.
func TestNotesBeyondFourGigabytesAreNotKept(t *testing.T) {
	t.Parallel()
	n := notes{size: math.MaxUint32 - 10, chunks: []noteChunk{{at: math.MaxUint32 - 10}}}
	if note := n.add(nil, noteError, make([]byte, 20)); note != 0 {
		t.Errorf("got note %d, want 0", note)
	}
	note := n.add(nil, noteError, []byte("short"))
	if _, got := n.get(note); string(got) != "short" {
		t.Errorf("short note: got %q at %d", got, note)
	}
	if n.add(nil, noteError, []byte("short")) != 0 {
		t.Error("got a note beyond the end")
	}
}

func TestDamagedNotesAreRefused(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string][]byte{
		"empty": {}, "no length": {byte(noteError)}, "too short": {byte(noteError), 9, 1}, "no kind": {0, 1, 1}, "unknown kind": {9, 1, 1},
		"attempt without fields": {byte(noteAttempt), 1, 1}, "end without a text": {byte(noteEnd), 1, 1}, "end with more": {byte(noteEnd), 3, 1, 1, 1},
		"result without a size": {byte(noteResult), 0}, "result without a digest": {byte(noteResult), 2, 0, 32}, "garbage after": {byte(noteError), 0, 1},
	} {
		if err := new(notes).restore(frame); err == nil {
			t.Errorf("%s: got no error for %v", name, frame)
		}
	}
}

func TestForkedMapsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	ownA, ownB := new(ownership), new(ownership)
	var a cowMap[int]
	for i := range 1000 {
		a.set(ownA, fmt.Sprint(i), i)
	}
	b := a
	ownA = new(ownership)
	for i := range 1000 {
		switch i % 3 {
		case 0:
			a.delete(ownA, fmt.Sprint(i))
		case 1:
			b.set(ownB, fmt.Sprint(i), -i)
		}
	}
	a.delete(ownA, "nobody's")
	for i := range 1000 {
		va, ina := a.get(fmt.Sprint(i))
		vb, inb := b.get(fmt.Sprint(i))
		if ina != (i%3 != 0) || (ina && va != i) || !inb || (i%3 == 1) != (vb < 0) {
			t.Fatalf("key %d: got %d %v and %d %v", i, va, ina, vb, inb)
		}
	}
	if a.n != 666 || b.n != 1000 {
		t.Errorf("got %d and %d keys, want 666 and 1000", a.n, b.n)
	}
}
