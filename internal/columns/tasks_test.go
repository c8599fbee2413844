package columns

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// tasks reads a message row by row.
func tasks(m *dtaskv1.TaskColumns, first uint32) ([]Task, error) {
	r, err := ReadTasks(m, first)
	if err != nil {
		return nil, err
	}
	var list []Task
	for r.Left() > 0 {
		row := r.Next()
		row.Dependencies = slices.Clone(row.Dependencies)
		list = append(list, row)
	}
	return list, nil
}

// writeTasks makes a message of rows.
func writeTasks(first uint32, rows []Task) *dtaskv1.TaskColumns {
	m := NewTasks(nil)
	for i := range rows {
		AddTask(m, first+uint32(i), &rows[i])
	}
	return m
}

// filledConditions returns the conditions of a row, also if all must complete.
func filledConditions(t Task) []dtaskv1.Condition {
	if len(t.Conditions) > 0 {
		return t.Conditions
	}
	return slices.Repeat([]dtaskv1.Condition{dtaskv1.Condition_CONDITION_COMPLETED}, len(t.Dependencies))
}

func sameTask(a, b Task) bool {
	return a.ID == b.ID && a.Policy == b.Policy && slices.Equal(a.Dependencies, b.Dependencies) && slices.Equal(filledConditions(a), filledConditions(b)) && bytes.Equal(a.Body, b.Body)
}

func TestTasksRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		one, independent, empty, conditional := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		first := 10 + r.Uint32N(1000)
		var want []Task
		for i := range r.Uint32N(40) {
			row := Task{ID: "käse-task"[:r.IntN(9)], Policy: often(r, one), Body: bytes.Repeat([]byte{byte(i)}, int(often(r, empty)))}
			for d := range often(r, independent) {
				row.Dependencies = append(row.Dependencies, 2*d+r.Uint32N(2))
			}
			for some := conditional && r.IntN(2) == 0; some && len(row.Conditions) < len(row.Dependencies); {
				row.Conditions = append(row.Conditions, dtaskv1.Condition(1+r.IntN(4)))
			}
			want = append(want, row)
		}
		got, err := tasks(sent(t, writeTasks(first, want), &dtaskv1.TaskColumns{}), first)
		if err != nil || len(got) != len(want) {
			t.Fatalf("seed %d: %d rows, %v; want %d", seed, len(got), err, len(want))
		}
		for i, w := range want {
			g := got[i]
			if !sameTask(g, w) {
				t.Fatalf("seed %d: row %d is %+v, want %+v", seed, i, g, w)
			}
		}
	}
}

func TestInvalidDependenciesRoundTrip(t *testing.T) {
	t.Parallel()
	want := []uint32{0, 7, 6, math.MaxUint32, 5, 5}
	got, err := tasks(writeTasks(5, []Task{{ID: "a", Dependencies: want}}), 5)
	if err != nil || !slices.Equal(got[0].Dependencies, want) {
		t.Errorf("%v, %v; want %v for the checker to refuse", got, err, want)
	}
}

// threeTasks are columns that are right.
func threeTasks() *dtaskv1.TaskColumns {
	return writeTasks(9, []Task{
		{ID: "a", Policy: 1, Body: []byte("body")}, {ID: "bb", Dependencies: []uint32{0, 9}}, {ID: "c", Policy: 2, Dependencies: []uint32{10}, Body: []byte("b")},
	})
}

func TestInconsistentTasksAreMalformed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *dtaskv1.TaskColumns){
		"an id too few":            func(m *dtaskv1.TaskColumns) { m.IdSizes = m.GetIdSizes()[1:] },
		"no ids":                   func(m *dtaskv1.TaskColumns) { m.IdSizes = nil },
		"an id too long":           func(m *dtaskv1.TaskColumns) { m.IdSizes[0]++ },
		"ids that wrap":            func(m *dtaskv1.TaskColumns) { m.IdSizes = []uint32{math.MaxUint32, 1, 4} },
		"letters of nobody":        func(m *dtaskv1.TaskColumns) { m.Ids = append(m.GetIds(), 'x') },
		"a policy too many":        func(m *dtaskv1.TaskColumns) { m.Policies = append(m.GetPolicies(), 0) },
		"a body too few":           func(m *dtaskv1.TaskColumns) { m.BodySizes = m.GetBodySizes()[1:] },
		"a body too long":          func(m *dtaskv1.TaskColumns) { m.BodySizes[2] = math.MaxUint32 },
		"bodies without sizes":     func(m *dtaskv1.TaskColumns) { m.BodySizes = nil },
		"sizes without bodies":     func(m *dtaskv1.TaskColumns) { m.Bodies = nil },
		"a count too many":         func(m *dtaskv1.TaskColumns) { m.DependencyCounts = append(m.GetDependencyCounts(), 0) },
		"a count too large":        func(m *dtaskv1.TaskColumns) { m.DependencyCounts[1]++ },
		"counts that wrap":         func(m *dtaskv1.TaskColumns) { m.DependencyCounts = []uint32{math.MaxUint32, 1, 3} },
		"distances without counts": func(m *dtaskv1.TaskColumns) { m.DependencyCounts = nil },
		"counts without distances": func(m *dtaskv1.TaskColumns) { m.Distances = nil },
		"a condition too few":      func(m *dtaskv1.TaskColumns) { m.Conditions = make([]dtaskv1.Condition, 2) },
		"a distance of nobody":     func(m *dtaskv1.TaskColumns) { m.Distances = append(m.GetDistances(), 1) },
	} {
		m := threeTasks()
		if _, err := tasks(m, 9); err != nil {
			t.Fatal(err)
		}
		spoil(m)
		if _, err := tasks(m, 9); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want that it is malformed", name, err)
		}
	}
	if list, err := tasks(nil, 0); len(list) != 0 || err != nil {
		t.Errorf("no message: %v, %v", list, err)
	}
}

// FuzzTasks: whatever is accepted can be read to the end, and says the same
// when it is written again.
func FuzzTasks(f *testing.F) {
	for _, m := range []*dtaskv1.TaskColumns{{}, threeTasks(), {IdSizes: []uint32{1}, Ids: []byte("a"), BodySizes: []uint32{3}, Bodies: []byte{0x2a, 1, 'p'}}} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint32(9))
	}
	f.Fuzz(func(t *testing.T, raw []byte, first uint32) {
		m := &dtaskv1.TaskColumns{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		rows, err := tasks(m, first)
		if err != nil {
			return
		}
		if again, err := tasks(writeTasks(first, rows), first); err != nil || !slices.EqualFunc(again, rows, sameTask) {
			t.Errorf("%v is written %v: %v", rows, again, err)
		}
	})
}
