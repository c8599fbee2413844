package spec

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestIDsThatCountNeedNoMap(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"t%d", "step-%06d"} {
		var s idSet
		for i := range uint32(1200) {
			if _, known := s.add(fmt.Sprintf(form, i), i); known {
				t.Fatalf("%s: duplicate %d", form, i)
			}
		}
		if s.known != nil {
			t.Errorf("%s: there is a map", form)
		}
		if first, known := s.add(fmt.Sprintf(form, 7), 2000); !known || first != 7 {
			t.Errorf("%s: the id of task 7 is known: %v, of task %d", form, known, first)
		}
	}
}

// It is a map, whatever the order.
func TestIDsAreFoundAgainInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.StringMatching(`[ab]{1,3}`)).Draw(t, "ids")
		var s idSet
		model := map[string]uint32{}
		for i, id := range ids {
			first, known := s.add(id, uint32(i))
			want, duplicate := model[id]
			if known != duplicate || first != want {
				t.Fatalf("%q: known %v as %d, want %v as %d", id, known, first, duplicate, want)
			}
			if !duplicate {
				model[id] = uint32(i)
			}
		}
	})
}

// The form CELL:JOB/TASK is reserved: a colon before the slash must not be part of a job. Task
// IDs of released files have some.
func TestNamesOfJobsHaveNoColonsAndTaskIDsMay(t *testing.T) {
	t.Parallel()
	if err := CheckName("prod:nightly"); err == nil {
		t.Error("the name of a job has a colon")
	}
	if err := CheckLabel("prod:team", "x"); err == nil {
		t.Error("the name of a label has a colon")
	}
	if p := idProblem("load:eu"); p.bad() {
		t.Errorf("the id of a task has a colon: %v", p)
	}
}
