package columns

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// outcomes reads a message row by row.
func outcomes(m *dtaskv1.Outcomes) ([]Outcome, error) {
	r, err := ReadOutcomes(m)
	if err != nil {
		return nil, err
	}
	var list []Outcome
	for r.Left() > 0 {
		list = append(list, r.Next())
	}
	return list, nil
}

func assignments(m *dtaskv1.Assignments) ([]Assignment, error) {
	r, err := ReadAssignments(m)
	if err != nil {
		return nil, err
	}
	var list []Assignment
	for r.Left() > 0 {
		list = append(list, r.Next())
	}
	return list, nil
}

// sent is what arrives of a message.
func sent[M proto.Message](t *testing.T, m, arrived M) M {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(raw, arrived); err != nil {
		t.Fatal(err)
	}
	return arrived
}

// often is a number that is zero with some messages, for all their rows.
func often(r *rand.Rand, never bool) uint32 {
	if never {
		return 0
	}
	return r.Uint32N(5)
}

func TestOutcomesRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		plain, quick := r.IntN(2) == 0, r.IntN(2) == 0
		first := 1 + r.Uint64N(1000)
		m := NewOutcomes(first, 3)
		var want []Outcome
		for i := range r.IntN(40) {
			o := Outcome{Job: r.Uint64(), Task: r.Uint32(), Attempt: 1 + r.Uint32N(3), TookMS: often(r, quick)}
			if n := int(often(r, plain)); n > 0 {
				o.Result = bytes.Repeat([]byte{byte(i)}, n)
			}
			if r.IntN(5) == 0 {
				o.Result, o.Detail = nil, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind(r.IntN(7)), Error: "e", Result: []byte("r")}
			}
			AddOutcome(m, &o)
			o.Number = first + uint64(i)
			want = append(want, o)
		}
		got, err := outcomes(sent(t, m, &dtaskv1.Outcomes{}))
		if err != nil || len(got) != len(want) {
			t.Fatalf("seed %d: %d rows, %v; want %d", seed, len(got), err, len(want))
		}
		for i := range want {
			if !proto.Equal(got[i].Detail, want[i].Detail) {
				t.Fatalf("seed %d: row %d has %v, want %v", seed, i, got[i].Detail, want[i].Detail)
			}
			got[i].Detail, want[i].Detail = nil, nil
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("seed %d: row %d is %+v, want %+v", seed, i, got[i], want[i])
			}
		}
	}
}

func TestAssignmentsRoundTrip(t *testing.T) {
	t.Parallel()
	policies := make([]*dtaskv1.TaskPolicy, 5)
	for i := range policies {
		policies[i] = &dtaskv1.TaskPolicy{}
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		one, same, fresh, empty := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		m := NewAssignments(3)
		for range 5 {
			m.Contexts = append(m.Contexts, &dtaskv1.JobContext{Policies: policies})
		}
		var want []Assignment
		for i := range r.IntN(40) {
			a := Assignment{
				Context: often(r, one), Policy: often(r, same), Task: r.Uint32(), Attempt: r.Uint32(), Failures: often(r, fresh),
				ID: "käse-task"[:r.IntN(9)], Body: bytes.Repeat([]byte{byte(i)}, int(often(r, empty))),
			}
			if r.IntN(5) == 0 {
				a.Extras = &dtaskv1.AssignmentExtras{JobOutcome: dtaskv1.JobState_JOB_STATE_FAILED}
			}
			AddAssignment(m, &a)
			want = append(want, a)
		}
		got, err := assignments(sent(t, m, &dtaskv1.Assignments{}))
		if err != nil || len(got) != len(want) {
			t.Fatalf("seed %d: %d rows, %v; want %d", seed, len(got), err, len(want))
		}
		for i, w := range want {
			g := got[i]
			if !bytes.Equal(g.Body, w.Body) || !proto.Equal(g.Extras, w.Extras) {
				t.Fatalf("seed %d: row %d is %+v, want %+v", seed, i, g, w)
			}
			g.Body, g.Extras, w.Body, w.Extras = nil, nil, nil, nil
			if !reflect.DeepEqual(g, w) {
				t.Fatalf("seed %d: row %d is %+v, want %+v", seed, i, g, w)
			}
		}
	}
}

// whole gives messages of three rows that are right.
func whole() (*dtaskv1.Outcomes, *dtaskv1.Assignments) {
	o := NewOutcomes(7, 3)
	a := NewAssignments(3)
	a.Contexts = []*dtaskv1.JobContext{{Policies: []*dtaskv1.TaskPolicy{{}, {}}}}
	for i := range uint32(3) {
		out := Outcome{Job: 1, Task: i, Attempt: 1, TookMS: 1, Result: []byte("rr")}
		if i == 1 {
			out = Outcome{Job: 1, Task: i, Attempt: 1, Detail: &dtaskv1.Outcome{}}
		}
		AddOutcome(o, &out)
		in := Assignment{Policy: i % 2, Task: i, Attempt: 1, Failures: 1, ID: "id", Body: []byte("body")}
		if i == 1 {
			in.Extras = &dtaskv1.AssignmentExtras{}
		}
		AddAssignment(a, &in)
	}
	return o, a
}

func TestInconsistentOutcomesAreMalformed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *dtaskv1.Outcomes){
		"a job too few":           func(m *dtaskv1.Outcomes) { m.Jobs = m.GetJobs()[1:] },
		"a task too many":         func(m *dtaskv1.Outcomes) { m.Tasks = append(m.GetTasks(), 1) },
		"an attempt too few":      func(m *dtaskv1.Outcomes) { m.Attempts = m.GetAttempts()[1:] },
		"no tasks":                func(m *dtaskv1.Outcomes) { m.Tasks = nil },
		"a time too few":          func(m *dtaskv1.Outcomes) { m.TookMs = m.GetTookMs()[1:] },
		"a size too many":         func(m *dtaskv1.Outcomes) { m.ResultSizes = append(m.GetResultSizes(), 0) },
		"a size too large":        func(m *dtaskv1.Outcomes) { m.ResultSizes[2] = math.MaxUint32 },
		"sizes that wrap":         func(m *dtaskv1.Outcomes) { m.ResultSizes = []uint32{math.MaxUint32, 0, 5} },
		"bytes of nobody":         func(m *dtaskv1.Outcomes) { m.Results = append(m.GetResults(), 1) },
		"bytes without sizes":     func(m *dtaskv1.Outcomes) { m.ResultSizes = nil },
		"sizes without bytes":     func(m *dtaskv1.Outcomes) { m.Results = nil },
		"a place beyond the end":  func(m *dtaskv1.Outcomes) { m.Details[0].Row = 3 },
		"the last place there is": func(m *dtaskv1.Outcomes) { m.Details[0].Row = math.MaxUint32 },
		"a place twice":           func(m *dtaskv1.Outcomes) { m.Details = append(m.GetDetails(), m.GetDetails()[0]) },
		"places that descend":     func(m *dtaskv1.Outcomes) { m.Details = append(m.GetDetails(), &dtaskv1.Outcome{Row: 0}) },
		"two results of an entry": func(m *dtaskv1.Outcomes) { m.Details[0].Row = 2 },
		"number 0":                func(m *dtaskv1.Outcomes) { m.First = 0 },
		"numbers that wrap":       func(m *dtaskv1.Outcomes) { m.First = math.MaxUint64 - 1 },
		"an outcome and no column": func(m *dtaskv1.Outcomes) {
			m.Jobs, m.Tasks, m.Attempts, m.TookMs, m.ResultSizes, m.Results = nil, nil, nil, nil, nil, nil
		},
	} {
		m, _ := whole()
		if _, err := outcomes(m); err != nil {
			t.Fatal(err)
		}
		spoil(m)
		if _, err := outcomes(m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want that it is malformed", name, err)
		}
	}
}

func TestInconsistentAssignmentsAreMalformed(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *dtaskv1.Assignments){
		"a context too few":      func(m *dtaskv1.Assignments) { m.Context = []uint32{0, 0} },
		"a context that is not":  func(m *dtaskv1.Assignments) { m.Context = []uint32{0, 0, 1} },
		"no contexts":            func(m *dtaskv1.Assignments) { m.Contexts = nil },
		"a policy too many":      func(m *dtaskv1.Assignments) { m.Policy = append(m.GetPolicy(), 0) },
		"a policy that is not":   func(m *dtaskv1.Assignments) { m.Policy[2] = 2 },
		"the last policy":        func(m *dtaskv1.Assignments) { m.Policy[2] = math.MaxUint32 },
		"a task too few":         func(m *dtaskv1.Assignments) { m.Tasks = m.GetTasks()[1:] },
		"no tasks":               func(m *dtaskv1.Assignments) { m.Tasks = nil },
		"an attempt too few":     func(m *dtaskv1.Assignments) { m.Attempts = m.GetAttempts()[1:] },
		"a failure too few":      func(m *dtaskv1.Assignments) { m.Failures = m.GetFailures()[1:] },
		"an id too few":          func(m *dtaskv1.Assignments) { m.IdSizes = m.GetIdSizes()[1:] },
		"no ids":                 func(m *dtaskv1.Assignments) { m.IdSizes = nil },
		"an id too long":         func(m *dtaskv1.Assignments) { m.IdSizes[0]++ },
		"letters of nobody":      func(m *dtaskv1.Assignments) { m.Ids = append(m.GetIds(), 'x') },
		"a body too many":        func(m *dtaskv1.Assignments) { m.BodySizes = append(m.GetBodySizes(), 0) },
		"a body too long":        func(m *dtaskv1.Assignments) { m.BodySizes[2] = math.MaxUint32 },
		"bodies without sizes":   func(m *dtaskv1.Assignments) { m.BodySizes = nil },
		"sizes without bodies":   func(m *dtaskv1.Assignments) { m.Bodies = nil },
		"a place beyond the end": func(m *dtaskv1.Assignments) { m.Extras[0].Row = 3 },
		"a place twice":          func(m *dtaskv1.Assignments) { m.Extras = append(m.GetExtras(), m.GetExtras()[0]) },
		"particulars and no task": func(m *dtaskv1.Assignments) {
			m.Policy, m.Tasks, m.Attempts, m.Failures, m.IdSizes, m.Ids, m.BodySizes, m.Bodies = nil, nil, nil, nil, nil, nil, nil, nil
		},
	} {
		_, m := whole()
		if _, err := assignments(m); err != nil {
			t.Fatal(err)
		}
		spoil(m)
		if _, err := assignments(m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want that it is malformed", name, err)
		}
	}
}

func TestNilMessagesHaveNoRows(t *testing.T) {
	t.Parallel()
	if list, err := outcomes(nil); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := assignments(nil); len(list) != 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// FuzzColumns: whatever is accepted can be read to the end, and says the same
// when it is written again.
func FuzzColumns(f *testing.F) {
	o, a := whole()
	for _, m := range []proto.Message{o, a, &dtaskv1.Outcomes{}, &dtaskv1.Assignments{}} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, a := &dtaskv1.Outcomes{}, &dtaskv1.Assignments{}
		if proto.Unmarshal(raw, o) == nil {
			if rows, err := outcomes(o); err == nil {
				again := NewOutcomes(o.GetFirst(), len(rows))
				for i := range rows {
					AddOutcome(again, &rows[i])
				}
				if twice, err := outcomes(again); err != nil || !reflect.DeepEqual(rows, twice) {
					t.Errorf("%v is written %v: %v", rows, again, err)
				}
			}
		}
		if proto.Unmarshal(raw, a) == nil {
			if rows, err := assignments(a); err == nil {
				again := NewAssignments(len(rows))
				again.Contexts = a.GetContexts()
				for i := range rows {
					AddAssignment(again, &rows[i])
				}
				if twice, err := assignments(again); err != nil || len(twice) != len(rows) {
					t.Errorf("%v is written %v: %v", rows, again, err)
				}
			}
		}
	})
}
