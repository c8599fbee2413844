package api

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// inColumns converts all tasks without arrays to columns.
func inColumns(tb testing.TB, messages ...*dtaskv1.JobPart) []*dtaskv1.JobPart {
	tb.Helper()
	var all []*dtaskv1.JobPart
	index := uint32(0)
	for _, m := range messages {
		head := proto.CloneOf(m)
		head.Tasks = nil
		list := []*dtaskv1.JobPart{head}
		for _, t := range m.GetTasks() {
			last := list[len(list)-1]
			if t.GetArray() != nil {
				list = append(list, &dtaskv1.JobPart{Tasks: []*dtaskv1.TaskSpec{t}})
			} else {
				if len(last.GetTasks()) > 0 {
					last = &dtaskv1.JobPart{}
					list = append(list, last)
				}
				if last.GetColumns() == nil {
					last.Columns = columns.NewTasks(nil)
				}
				body, err := taskbody.Append(nil, t.GetBody())
				if err != nil {
					tb.Fatal(err)
				}
				columns.AddTask(last.GetColumns(), index, &columns.Task{ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Conditions: t.GetConditions(), Body: body})
			}
			index += uint32(array.Tasks(t))
		}
		all = append(all, list...)
	}
	return all
}

// take checks and encodes the parts of a job.
func take(messages []*dtaskv1.JobPart) (sequencer.Submission, error) {
	u := &upload{Server: fuzzed(), caller: open}
	for _, m := range messages {
		if err := u.add(proto.CloneOf(m)); err != nil {
			return sequencer.Submission{}, err
		}
	}
	return u.seal()
}

// variedHeader returns a header with policies that are checked differently.
func variedHeader() *dtaskv1.JobHeader {
	h := header("x")
	usual := h.GetPolicies()[0]
	command, pure, last := proto.CloneOf(usual), proto.CloneOf(usual), proto.CloneOf(usual)
	command.Type, pure.ReuseMs, last.Finally = "", 1000, true
	h.Policies = []*dtaskv1.TaskPolicy{usual, command, pure, last}
	return h
}

// randomTask returns a task that may have a fault if spoiled is set.
func randomTask(r *rand.Rand, index uint32, spoiled bool) *dtaskv1.TaskSpec {
	t := &dtaskv1.TaskSpec{Id: fmt.Sprint("t", index), Body: &dtaskv1.TaskBody{Payload: make([]byte, r.IntN(3)*r.IntN(100))}}
	for d := uint32(0); d < index && r.IntN(3) > 0; d += 1 + r.Uint32N(5) {
		t.Dependencies = append(t.Dependencies, d)
	}
	switch r.IntN(12) {
	case 0:
		t.Policy, t.Body.Run = 1, "true"
	case 1:
		t.Policy, t.Body.Command, t.Body.Inputs = 1, []string{"true", "ä"}, []string{"/in"}
	case 2:
		t.Policy, t.Body.ReuseKey = 2, "key"
	case 3:
		t.Body.Output = fmt.Sprint("/out/", index)
	}
	if !spoiled || r.IntN(4) > 0 {
		return t
	}
	switch r.IntN(9) {
	case 0:
		t.Id = []string{"", "a/b", "\xff", strings.Repeat("x", 129), "..", "t0"}[r.IntN(6)]
	case 1:
		t.Dependencies = append(t.GetDependencies(), index+r.Uint32N(2))
	case 2:
		t.Dependencies = append(t.GetDependencies(), 0, 0)
	case 3:
		t.Policy = r.Uint32N(7)
	case 4:
		t.Body.Run = "both"
	case 5:
		t.Body.Payload = make([]byte, 65<<10)
	case 6:
		t.Policy = 3
	case 7:
		t.Body.Output = []string{"relative", "/out/0"}[r.IntN(2)]
	case 8:
		t.Body.ReuseKey = "unused"
	}
	return t
}

// words returns the message and all faults of an error; empty for nil.
func words(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message + ": " + strings.Join(e.Faults, "\n")
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestTasksInColumnsEqualTaskSpecs(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 5))
		spoiled := seed%2 == 1
		all := []*dtaskv1.JobPart{{Header: variedHeader(), IdempotencyKey: "k"}}
		for range 1 + r.IntN(4) {
			m := all[len(all)-1]
			for range 1 + r.IntN(60) {
				m.Tasks = append(m.Tasks, randomTask(r, all[0].GetTotal(), spoiled))
				all[0].Total++
			}
			if r.IntN(3) == 0 {
				two := &dtaskv1.ArraySpec{Items: [][]byte{[]byte("1"), []byte("2")}, ItemsTotal: 2}
				all = append(all, &dtaskv1.JobPart{Tasks: []*dtaskv1.TaskSpec{{Id: fmt.Sprint("map", len(all)), Body: &dtaskv1.TaskBody{}, Array: two}}})
				all[0].Total += 2
			}
			all = append(all, &dtaskv1.JobPart{})
		}
		want, wantErr := take(all)
		got, gotErr := take(inColumns(t, all...))
		if words(gotErr) != words(wantErr) {
			t.Fatalf("seed %d: in columns\n%s\nas messages\n%s", seed, words(gotErr), words(wantErr))
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got different jobs from columns and messages", seed)
		}
		if wantErr != nil {
			refused++
		}
	}
	if refused < 50 || refused > 250 {
		t.Errorf("got %d of 400 jobs refused, want a mix of valid and invalid jobs", refused)
	}
}

func TestJobInColumnsIsStored(t *testing.T) {
	t.Parallel()
	r := setup(t)
	first, err := r.send(t.Context(), inColumns(t, request("k", header("x"), diamond()...))...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.send(t.Context(), request("k", header("x"), diamond()...))
	if err != nil || !again.GetExisted() || again.GetId() != first.GetId() {
		t.Errorf("the same job as messages: got %v, %v; want job %s", again, err, first.GetId())
	}
}

func TestMalformedColumnsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spoil func(m *dtaskv1.JobPart)
		words string
	}{
		{func(m *dtaskv1.JobPart) { m.Columns.Ids = append(m.GetColumns().GetIds(), 'x') }, "ids are 5 bytes, and their sizes say 4"},
		{func(m *dtaskv1.JobPart) { m.Columns.Distances = nil }, "there are 0 distances, and dependency_counts say 4"},
		{func(m *dtaskv1.JobPart) {
			m.Columns.BodySizes, m.Columns.Bodies = []uint32{0, 2, 0, 0}, []byte{0x2a, 5}
		}, `malformed body of task "b"`},
		{func(m *dtaskv1.JobPart) { m.Tasks = diamond() }, "mutually exclusive"},
		{func(m *dtaskv1.JobPart) { m.Total = 3 }, "3 tasks were announced, but more were sent"},
		{func(m *dtaskv1.JobPart) { m.Total = 5 }, "has 4 tasks, but 5 were announced"},
		{func(m *dtaskv1.JobPart) { m.Columns.Distances[0] = 0 }, "1 is not below the task's own index 1"},
		{func(m *dtaskv1.JobPart) { copy(m.GetColumns().GetIds(), "bb") }, "duplicate id of tasks 0 and 1"},
	} {
		m := inColumns(t, request("k", header("x"), diamond()...))
		m[0].Total = 4
		c.spoil(m[0])
		_, err := take(m)
		if !strings.Contains(words(err), c.words) {
			t.Errorf("got %q, want it to contain %q", words(err), c.words)
		}
	}
}

func TestMemoryOfColumnsIsCounted(t *testing.T) {
	t.Parallel()
	const tasks = 500_000 // of two bytes each
	m := &dtaskv1.JobPart{Columns: &dtaskv1.TaskColumns{IdSizes: slices.Repeat([]uint32{1}, tasks), Ids: make([]byte, tasks)}}
	if got := tasksCost(m); got < tasks*taskCost {
		t.Errorf("got a cost of %d bytes", got)
	}
	m.Columns.Distances = make([]uint32, tasks)
	if got := tasksCost(m); got < tasks*(taskCost+4) {
		t.Errorf("tasks with dependencies: got a cost of %d bytes", got)
	}
}

// FuzzTaskColumns checks that columns and the same tasks as TaskSpecs give the same
// job or the same faults.
func FuzzTaskColumns(f *testing.F) {
	first := request("k", variedHeader(), diamond()...)
	for i, spoil := range []func(tasks []*dtaskv1.TaskSpec){
		func([]*dtaskv1.TaskSpec) {},
		func(tasks []*dtaskv1.TaskSpec) { tasks[1].Dependencies = []uint32{1} },
		func(tasks []*dtaskv1.TaskSpec) { tasks[1].Policy, tasks[2].Id = 9, "a" },
		func(tasks []*dtaskv1.TaskSpec) { tasks[1].Policy, tasks[1].Body.Run = 1, "true" },
		func(tasks []*dtaskv1.TaskSpec) { tasks[3].Policy, tasks[3].Dependencies = 3, nil },
	} {
		m := proto.CloneOf(first)
		spoil(m.GetTasks())
		for _, c := range inColumns(f, m) {
			raw, err := proto.Marshal(c)
			if err != nil {
				f.Fatal(i, err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &dtaskv1.JobPart{}
		if proto.Unmarshal(raw, m) != nil || m.GetColumns() == nil || len(m.GetTasks()) > 0 {
			return
		}
		listed := proto.CloneOf(m)
		listed.Columns = nil
		r, err := columns.ReadTasks(m.GetColumns(), 0)
		for err == nil && r.Left() > 0 {
			var one *dtaskv1.TaskSpec
			one, err = taskOf(r.Next())
			listed.Tasks = append(listed.Tasks, one)
		}
		got, gotErr := take([]*dtaskv1.JobPart{m})
		if err != nil {
			if gotErr == nil {
				t.Error("malformed columns: got no error")
			}
			return
		}
		want, wantErr := take([]*dtaskv1.JobPart{listed})
		if words(gotErr) != words(wantErr) {
			t.Errorf("in columns\n%s\nas messages\n%s", words(gotErr), words(wantErr))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got different jobs from columns and messages:\n%+v\n%+v", got, want)
		}
	})
}
