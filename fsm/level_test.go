package fsm

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// laterLevel is the highest level of a later build. Random histories raise clusters up
// to it.
const laterLevel = MaxLevel + 2

// newLaterMachine returns the machine of a later build.
func newLaterMachine() *Machine {
	m := NewMachine()
	m.SupportLevel(laterLevel)
	return m
}

// readLaterSnapshot is ReadSnapshot of a later build.
func readLaterSnapshot(b []byte) (*State, error) {
	return readSnapshot(bytes.NewReader(b), laterLevel, false)
}

// atLevel returns the state of a cluster at a level.
func atLevel(t *testing.T, ops ...Op) *State {
	t.Helper()
	s := New()
	if r := s.Apply(Entry{Ops: ops}, nil); r != Accepted {
		t.Fatal(r)
	}
	return s
}

func TestTheLevelOfAClusterIsOnlyRaised(t *testing.T) {
	t.Parallel()
	s := New()
	if s.Level() != 1 || s.LevelHeld() {
		t.Errorf("a new cluster: got level %d, held %v, want 1 and false", s.Level(), s.LevelHeld())
	}
	for _, c := range []struct {
		op     SetLevel
		want   Reason
		level  Level
		isHeld bool
	}{
		{SetLevel{Level: 0}, Malformed, 1, false},
		{SetLevel{Level: 1, Held: true}, Accepted, 1, true},
		{SetLevel{Level: 1, Held: true}, Accepted, 1, true},
		{SetLevel{Level: 3}, Accepted, 3, false},
		{SetLevel{Level: 2, Held: true}, OutOfOrder, 3, false},
		{SetLevel{Level: 3, Held: true}, Accepted, 3, true},
	} {
		if got := s.Apply(Entry{Ops: []Op{&c.op}}, nil); got != c.want || s.Level() != c.level || s.LevelHeld() != c.isHeld {
			t.Errorf("%+v: got %v, level %d, held %v, want %v, %d, %v", c.op, got, s.Level(), s.LevelHeld(), c.want, c.level, c.isHeld)
		}
	}
}

// An operation above the level would halt the replicas that don't know it.
func TestAnEntryHasNoOperationAboveTheLevel(t *testing.T) {
	t.Parallel()
	for _, op := range examples() {
		s := New()
		s.level.current = OpLevel(op) - 1
		b := NewEntryBuilder(s, 1, nil)
		if r := b.Do(op); r != AboveLevel {
			t.Errorf("%s below its level: got %v, want %v", exampleName(op), r, AboveLevel)
		}
		if _, _, ok := b.Finish(); ok {
			t.Errorf("%s below its level is in the entry", exampleName(op))
		}
	}
	s := New()
	s.level.current = 0
	b := NewEntryBuilder(s, 1, nil)
	b.ExpectCompletions(3)
	if r := b.Complete(CompleteItem{}); r != AboveLevel {
		t.Errorf("an item below its level: got %v, want %v", r, AboveLevel)
	}
}

// This build's level is in the binaries of users: what is added later must be behind a
// higher one, or a replica that was not upgraded yet halts.
func TestLaterOperationsAreBehindALevel(t *testing.T) {
	t.Parallel()
	const last = 37 // of level 1
	for k, row := range operations {
		if row.make == nil {
			continue
		}
		if row.since < MinLevel || row.since > MaxLevel || (k <= last) != (row.since == 1) {
			t.Errorf("operation %s of kind %d has level %d", row.name, k, row.since)
		}
	}
}

func TestAReplicaHaltsAtALevelThatItDoesNotSupport(t *testing.T) {
	t.Parallel()
	m, later := NewMachine(), newLaterMachine()
	apply := func(m *Machine) any {
		return m.Apply(1, Encode(nil, Entry{Ops: []Op{&SetLevel{Level: MaxLevel + 1}}}))
	}
	halt, halted := apply(m).(*HaltError)
	if !halted {
		t.Fatal("the entry was applied")
	}
	level, ok := errors.AsType[*LevelError](halt)
	if !ok || level.Level != MaxLevel+1 || level.Max != MaxLevel || m.Index() != 0 {
		t.Errorf("got %v at index %d, want a LevelError at index 0", halt, m.Index())
	}
	if r, ok := apply(later).(Applied); !ok || r.Rejected != Accepted {
		t.Errorf("a later build: got %+v, want accepted", r)
	}
	if text := (&LevelError{Level: 2, Max: 1, Version: "v0.2.0"}).Error(); !strings.Contains(text, "version v0.2.0") {
		t.Errorf("got %q, want it to name the version", text)
	}
}

// A replica that was not upgraded yet must be able to restore what the leader sends,
// whichever build the leader has.
func TestASnapshotIsWrittenAtTheLevelOfTheCluster(t *testing.T) {
	t.Parallel()
	write := func(m *Machine, ops ...Op) *bytes.Buffer {
		for i, op := range ops {
			if r, ok := m.Apply(uint64(i+1), Encode(nil, Entry{Ops: []Op{op}})).(Applied); !ok || r.Rejected != Accepted {
				t.Fatalf("%+v: got %+v", op, r)
			}
		}
		var b bytes.Buffer
		if err := m.Snapshot().Persist(&b); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	id := &SetClusterID{ID: "c0ffee"}
	if now, later := write(NewMachine(), id), write(newLaterMachine(), id); !bytes.Equal(now.Bytes(), later.Bytes()) {
		t.Error("a later build writes another snapshot of a cluster at level 1")
	}
	if err := NewMachine().Restore(write(newLaterMachine(), id, &SetLevel{Level: 1, Held: true})); err != nil {
		t.Errorf("restoring what a later build wrote of a held cluster: %v", err)
	}
	raised := func() *bytes.Buffer { return write(newLaterMachine(), id, &SetLevel{Level: MaxLevel + 1}) }
	err := NewMachine().Restore(raised())
	if level, ok := errors.AsType[*LevelError](err); !ok || level.Level != MaxLevel+1 {
		t.Errorf("restoring a snapshot above the level: got %v, want a LevelError", err)
	}
	m := newLaterMachine()
	if err := m.Restore(raised()); err != nil {
		t.Fatal(err)
	}
	m.Read(func(s *State, _ uint64) {
		if s.Level() != MaxLevel+1 {
			t.Errorf("restored level %d, want %d", s.Level(), MaxLevel+1)
		}
	})
}

func TestADamagedFrameOfTheLevelIsRefused(t *testing.T) {
	t.Parallel()
	good := snapshotOf(t, atLevel(t, &SetLevel{Level: 1, Held: true}))
	for _, l := range []level{{current: 0}, {current: 0, held: true}, {current: 1}} {
		s := New()
		s.level = l
		bad := snapshotOf(t, s)
		if l.isDefault() { // it has no frame: make the one that good has
			var e encoder
			l.fields(&coder{e: &e})
			bad = reframed(good, frameLevel, e.b)
		}
		if _, err := ReadSnapshot(bytes.NewReader(bad)); err == nil {
			t.Errorf("%+v: got no error", l)
		}
	}
	at := bytes.Index(good, []byte{byte(frameCluster)})
	twice := append(bytes.Clone(good[:at]), good[len(snapshotMagic):]...)
	if _, err := ReadSnapshot(bytes.NewReader(twice)); err == nil {
		t.Error("two frames of the level: got no error")
	}
}

// reframed replaces the contents of the first frame of a snapshot, which must be of a kind.
func reframed(snapshot []byte, kind frameKind, contents []byte) []byte {
	var b bytes.Buffer
	f := frameWriter{}
	f.begin(&b, snapshotMagic)
	f.e.b = append(f.e.b, contents...)
	f.frame(kind)
	if err := f.finish(); err != nil {
		panic(err) // a buffer takes everything
	}
	return append(b.Bytes(), snapshot[b.Len():]...)
}
