package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// history is a random log and what the plain way of applying it gives.
type history struct {
	log      [][]byte
	digests  []uint64
	snapshot []byte
}

// randomHistory makes a random log of some entries; jobs have up to most tasks.
func randomHistory(choose chooser, entries, most int) *history {
	s, g, h := New(), newGenerator(choose), new(history)
	g.most = most
	for n := range entries {
		ops := g.ops(s)
		if n == 0 {
			ops = []Op{worker(1), worker(2)}
		}
		data := Encode(nil, Entry{NowMS: int64(n), Ops: ops})
		e, err := Decode(data)
		if err != nil {
			panic(err)
		}
		s.Apply(e, nil)
		h.log, h.digests = append(h.log, data), append(h.digests, s.Digest())
	}
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		panic(err)
	}
	h.snapshot = b.Bytes()
	return h
}

// compare returns what differs between a state and the history's at its end.
func (h *history) compare(s *State) error {
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		return err
	}
	if got, want := s.Digest(), h.digests[len(h.digests)-1]; got != want {
		return fmt.Errorf("digest %#x, want %#x", got, want)
	}
	if !bytes.Equal(b.Bytes(), h.snapshot) {
		return fmt.Errorf("snapshots differ")
	}
	return s.Check()
}

// replay applies the log; before each entry, change may put another state in
// the place of the present one.
func (h *history) replay(change func(n int, s *State) (*State, error)) error {
	s := New()
	for n, data := range h.log {
		var err error
		if s, err = change(n, s); err != nil {
			return fmt.Errorf("before entry %d: %w", n+1, err)
		}
		e, err := Decode(data)
		if err != nil {
			return err
		}
		s.Apply(e, nil)
		if s.Digest() != h.digests[n] {
			return fmt.Errorf("after entry %d: digest %#x, want %#x", n+1, s.Digest(), h.digests[n])
		}
	}
	return h.compare(s)
}

// again restores a snapshot of a state, and checks that the restored state writes
// the same snapshot.
func again(s *State) (*State, error) {
	var b, c bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		return nil, err
	}
	r, err := readLaterSnapshot(b.Bytes())
	if err != nil {
		return nil, err
	}
	if err := r.WriteSnapshot(&c); err != nil {
		return nil, err
	}
	if !bytes.Equal(b.Bytes(), c.Bytes()) {
		return nil, fmt.Errorf("the snapshot of the restored state differs")
	}
	return r, nil
}

// cut applies the log with snapshots and restores at random positions.
func (h *history) cut(choose chooser) error {
	return h.replay(func(_ int, s *State) (*State, error) {
		if choose.one(5) {
			return again(s)
		}
		return s, nil
	})
}

// still is a kept fork, with its contents.
type still struct {
	s        *State
	snapshot []byte
	written  bool
}

// forked applies the log with forks at random positions. One side continues, the
// other is kept or written to. Neither may see changes of the other.
func (h *history) forked(choose chooser) error {
	var kept []*still
	g := newGenerator(choose)
	err := h.replay(func(_ int, s *State) (*State, error) {
		if choose.one(4) {
			f := s.Fork()
			if choose.one(2) {
				s, f = f, s
			}
			var b bytes.Buffer
			if err := f.WriteSnapshot(&b); err != nil {
				return nil, err
			}
			kept = append(kept, &still{s: f, snapshot: b.Bytes()})
		}
		if len(kept) > 0 && choose.one(3) {
			other := kept[choose(len(kept))]
			other.written = true
			other.s.Apply(Entry{NowMS: 1 << 40, Ops: g.ops(other.s)}, nil)
			if err := other.s.Check(); err != nil {
				return nil, fmt.Errorf("fork: %w", err)
			}
		}
		return s, nil
	})
	if err != nil {
		return err
	}
	for n, f := range kept {
		var b bytes.Buffer
		if err := f.s.WriteSnapshot(&b); err != nil {
			return err
		}
		if !f.written && !bytes.Equal(b.Bytes(), f.snapshot) {
			return fmt.Errorf("fork %d changed with another state", n)
		}
		if err := f.s.Check(); err != nil {
			return fmt.Errorf("fork %d: %w", n, err)
		}
	}
	return nil
}

// machined applies the log through a Machine, some entries passed decoded, with
// snapshots persisted late and restored into another machine.
func (h *history) machined(choose chooser) error {
	m := newLaterMachine()
	var late *Snapshot
	for n, data := range h.log {
		index := uint64(n + 1)
		if choose.one(2) {
			e, err := Decode(bytes.Clone(data))
			if err != nil {
				return err
			}
			m.CacheDecoded(data, e)
		}
		a, ok := m.Apply(index, data).(Applied)
		if !ok || a.Digest != h.digests[n] || a.Index != index {
			return fmt.Errorf("entry %d: applied %+v, want digest %#x", index, a, h.digests[n])
		}
		if late != nil && choose.one(3) {
			next := newLaterMachine()
			if err := late.carryTo(next); err != nil {
				return err
			}
			for k := next.Index(); k < index; k++ {
				next.Apply(k+1, h.log[k])
			}
			m, late = next, nil
		}
		if choose.one(6) {
			late = m.Snapshot()
		}
	}
	if len(m.decoded) > 0 {
		return fmt.Errorf("%d cached entries are left", len(m.decoded))
	}
	s, _ := m.Fork()
	return h.compare(s)
}

// carryTo persists a snapshot and restores it into a machine.
func (s *Snapshot) carryTo(m *Machine) error {
	var b bytes.Buffer
	if err := s.Persist(&b); err != nil {
		return err
	}
	s.Release()
	return m.Restore(&b)
}

func TestALogGivesOneStateHoweverItIsApplied(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(*history, chooser) error{
		"cut by snapshots":  (*history).cut,
		"with forks":        (*history).forked,
		"through a machine": (*history).machined,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				choose := drawn(t)
				if err := way(randomHistory(choose, 10+choose(60), 8), choose); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The same with jobs of several pages of records and results of several chunks,
// and more jobs than a page of the table has.
func TestALargeLogGivesOneStateHoweverItIsApplied(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			choose := seeded(seed)
			h := randomHistory(choose, 500, 700)
			for _, way := range []func(chooser) error{h.cut, h.forked, h.machined} {
				if err := way(choose); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
