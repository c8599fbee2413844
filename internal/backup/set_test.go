package backup

import (
	"slices"
	"testing"
)

func namesOf(chain []Segment) (names []string) {
	for _, c := range chain {
		names = append(names, c.Name)
	}
	return names
}

func TestASetIsFoundByItsNames(t *testing.T) {
	t.Parallel()
	a, b, c := NewSegment(0, 5), NewSegment(5, 90), NewSegment(90, 100)
	s := ParseSet([]string{NewStateFile(100).Name, c.Name, ".dtaskctl-1", b.Name, "state-7.dtbk", NewStateFile(20).Name, a.Name, "history-1-2.dtbk", "x" + a.Name, a.Name + "x"})
	if !slices.Equal(s.States, []StateFile{NewStateFile(20), NewStateFile(100)}) || len(s.Segments) != 3 || s.HistoryTo() != 100 {
		t.Errorf("got %+v, history to %d", s, s.HistoryTo())
	}
	for to, want := range map[uint64][]string{0: nil, 5: {a.Name}, 100: {a.Name, b.Name, c.Name}} {
		if chain, complete := s.Chain(to); !complete || !slices.Equal(namesOf(chain), want) {
			t.Errorf("up to %d: %v, %t", to, chain, complete)
		}
	}
	if _, complete := s.Chain(50); complete {
		t.Error("a history up to 50 was found")
	}
}

// Two runs at the same time add segments that overlap, and a segment may have been deleted.
func TestOverlapsAndGapsInASet(t *testing.T) {
	t.Parallel()
	var names []string
	for _, r := range [][2]uint64{{0, 5}, {0, 7}, {5, 9}, {12, 20}, {3, 3}} {
		names = append(names, NewSegment(r[0], r[1]).Name)
	}
	s := ParseSet(names)
	if s.HistoryTo() != 9 {
		t.Errorf("the history is complete to %d, want 9", s.HistoryTo())
	}
	if chain, complete := s.Chain(9); !complete || len(chain) != 2 || chain[0].To != 5 {
		t.Errorf("got %v, %t", chain, complete)
	}
	for _, to := range []uint64{3, 20} {
		if _, complete := s.Chain(to); complete {
			t.Errorf("a history up to %d was found", to)
		}
	}
}
