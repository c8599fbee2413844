package check

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// An assignment above the quota of a queue, or of a paused queue, is found in the log.
func TestAnAssignmentAboveAQuotaIsFound(t *testing.T) {
	t.Parallel()
	header, err := proto.Marshal(&dtaskv1.JobHeader{Name: "a", Queue: "etl", Policies: []*dtaskv1.TaskPolicy{{Type: "noop"}}})
	if err != nil {
		t.Fatal(err)
	}
	chunk := fsm.NewChunkBuilder(0)
	for _, name := range []string{"a", "b", "c"} {
		chunk.Add(name, 0, nil, nil)
	}
	tasks := chunk.Chunk()
	set := func(n uint32, pause int64) fsm.Op {
		return &fsm.SetQueue{Name: "etl", QueueSettings: fsm.QueueSettings{Weight: 1, MaxRunning: n}, Pause: fsm.QueuePause{AtMS: pause}, AtMS: 1}
	}
	assign := func(indexes ...uint32) fsm.Op {
		op := &fsm.Assign{}
		for _, i := range indexes {
			op.Items = append(op.Items, fsm.AssignItem{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}, Worker: 1})
		}
		return op
	}
	for name, c := range map[string]struct {
		entries [][]fsm.Op
		faults  int
		judged  int
	}{
		"as many as the quota":         {[][]fsm.Op{{set(2, 0)}, {assign(0)}, {assign(1)}}, 0, 2},
		"one more than the quota":      {[][]fsm.Op{{set(2, 0)}, {assign(0, 1)}, {assign(2)}}, 1, 2},
		"a quota below what runs":      {[][]fsm.Op{{assign(0, 1)}, {set(1, 0)}}, 0, 0},
		"a start after a lower quota":  {[][]fsm.Op{{assign(0, 1)}, {set(1, 0)}, {assign(2)}}, 1, 1},
		"a start of a paused queue":    {[][]fsm.Op{{set(0, 5)}, {assign(0)}}, 1, 1},
		"a start of a queue without a": {[][]fsm.Op{{assign(0, 1, 2)}}, 0, 0},
	} {
		m := fsm.NewMachine()
		q, judged := newQuotas("n1", m), 0
		var faults list
		entries := append([][]fsm.Op{{
			&fsm.SetLevel{Level: 3}, set(0, 0),
			&fsm.RegisterWorker{ID: 1, Name: "w", Incarnation: "i", Slots: 8},
			&fsm.BeginUpload{ID: 1, Key: "k", Header: header, Total: 3},
			&fsm.AddChunk{Job: 1, Chunk: tasks}, &fsm.SealUpload{Job: 1, Sum: tasks.Sum(0)},
		}}, c.entries...)
		for i, ops := range entries {
			data := fsm.Encode(nil, fsm.Entry{NowMS: 1, Ops: ops})
			index := uint64(i + 1)
			if applied, ok := m.Apply(index, data).(fsm.Applied); !ok || applied.Rejected != fsm.Accepted {
				t.Fatalf("%s: entry %d: %+v", name, index, applied)
			}
			judged += q.applied(index, data, &faults)
		}
		if len(faults) != c.faults || judged != c.judged {
			t.Errorf("%s: got %d faults %v, and %d judged; want %d and %d", name, len(faults), faults, judged, c.faults, c.judged)
		}
	}
}

// An assignment that takes more of a resource than the quota of its queue is found in the log.
func TestAnAssignmentAboveAQuotaOnAResourceIsFound(t *testing.T) {
	t.Parallel()
	half, one := map[string]int64{"tape": 500}, map[string]int64{"tape": 1000}
	header, err := proto.Marshal(&dtaskv1.JobHeader{Name: "a", Queue: "etl", Policies: []*dtaskv1.TaskPolicy{
		{Type: "noop", Resources: one},
		{Type: "noop"},
		{Type: "noop", Resources: map[string]int64{"tape": 2000}, Alternatives: []*dtaskv1.ResourceList{{Resources: half}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	chunk := fsm.NewChunkBuilder(0)
	for i, name := range []string{"a", "b", "none", "either"} {
		chunk.Add(name, []uint32{0, 0, 1, 2}[i], nil, nil)
	}
	tasks := chunk.Chunk()
	set := func(name string, most int64) fsm.Op {
		x := &fsm.SetQueue{Name: name, QueueSettings: fsm.QueueSettings{Weight: 1}, AtMS: 1}
		if most > 0 {
			x.Max = []fsm.Resource{{Name: "tape", Amount: most}}
		}
		return x
	}
	attempt := func(i uint32) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
	}
	assign := func(i uint32) fsm.Op {
		return &fsm.Assign{Items: []fsm.AssignItem{{AttemptRef: attempt(i), Worker: 1}}}
	}
	second := &fsm.AssignAlternative{Items: []fsm.AlternativeItem{{HeldAttempt: fsm.HeldAttempt{AttemptRef: attempt(3), Worker: 1}, Alternative: 1}}}
	for name, c := range map[string]struct {
		entries [][]fsm.Op
		faults  int
		judged  int
	}{
		"as much as the quota":             {[][]fsm.Op{{set("etl", 2000)}, {assign(0)}, {assign(1)}}, 0, 2},
		"more than the quota":              {[][]fsm.Op{{set("etl", 1999)}, {assign(0)}, {assign(1)}}, 1, 2},
		"the first alternative":            {[][]fsm.Op{{set("etl", 2500)}, {assign(0)}, {assign(3)}}, 1, 2},
		"the second alternative":           {[][]fsm.Op{{set("etl", 2500)}, {assign(0), assign(1)}, {second}}, 0, 2},
		"the second alternative, too":      {[][]fsm.Op{{set("etl", 2499)}, {assign(0), assign(1)}, {second}}, 1, 2},
		"a quota below what runs":          {[][]fsm.Op{{assign(0), assign(1)}, {set("etl", 500)}}, 0, 0},
		"then one that takes nothing":      {[][]fsm.Op{{assign(0), assign(1)}, {set("etl", 500)}, {assign(2)}}, 0, 1},
		"then one that takes some":         {[][]fsm.Op{{assign(0), assign(1)}, {set("etl", 500)}, {second}}, 1, 1},
		"a quota that was lifted":          {[][]fsm.Op{{set("etl", 1)}, {set("etl", 0)}, {assign(0), assign(1)}}, 0, 0},
		"the quota is that of another one": {[][]fsm.Op{{set("other", 1)}, {assign(0), assign(1)}}, 0, 0},
	} {
		m := fsm.NewMachine()
		q, judged := newQuotas("n1", m), 0
		var faults list
		entries := append([][]fsm.Op{{
			&fsm.SetLevel{Level: 3}, set("etl", 0),
			&fsm.RegisterWorker{ID: 1, Name: "w", Incarnation: "i", Slots: 8, Resources: []fsm.Resource{{Name: "tape", Amount: 9000}}},
			&fsm.BeginUpload{ID: 1, Key: "k", Header: header, Total: 4},
			&fsm.AddChunk{Job: 1, Chunk: tasks}, &fsm.SealUpload{Job: 1, Sum: tasks.Sum(0)},
		}}, c.entries...)
		for i, ops := range entries {
			data := fsm.Encode(nil, fsm.Entry{NowMS: 1, Ops: ops})
			index := uint64(i + 1)
			if applied, ok := m.Apply(index, data).(fsm.Applied); !ok || applied.Rejected != fsm.Accepted {
				t.Fatalf("%s: entry %d: %+v", name, index, applied)
			}
			judged += q.applied(index, data, &faults)
		}
		if len(faults) != c.faults || judged != c.judged {
			t.Errorf("%s: got %d faults %v, and %d judged; want %d and %d", name, len(faults), faults, judged, c.faults, c.judged)
		}
	}
}
