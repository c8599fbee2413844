package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// allParts returns the parts of a job.
func allParts(t *testing.T, tasks []*dtaskv1.TaskSpec, head *dtaskv1.JobPart) (list []*dtaskv1.JobPart) {
	t.Helper()
	parts := newJobParts(&dtaskv1.JobSpec{Tasks: tasks}, head)
	for {
		part, size, err := parts.next()
		if err != nil || size < proto.Size(part) {
			t.Fatalf("got size %d of a part of %d bytes, %v", size, proto.Size(part), err)
		}
		if list = append(list, part); !part.GetMore() {
			return list
		}
	}
}

func TestArraysAreSentAsTheyAreAndAllOtherTasksInColumns(t *testing.T) {
	t.Parallel()
	array := func(id string) *dtaskv1.TaskSpec {
		return &dtaskv1.TaskSpec{Id: id, Array: &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{Last: 9, Step: 1}}}}
	}
	want := []*dtaskv1.TaskSpec{array("m1"), array("m2")}
	for i := range 20 {
		want = append(want, &dtaskv1.TaskSpec{Id: fmt.Sprint("t", i), Policy: uint32(i % 3), Dependencies: []uint32{0, uint32(10 + i)}, Body: &dtaskv1.TaskBody{Run: "x"}})
	}
	want = append(want, array("m3"), &dtaskv1.TaskSpec{Id: "last", Dependencies: []uint32{40, 49}, Body: &dtaskv1.TaskBody{Payload: []byte("p")}})
	first := &dtaskv1.JobPart{IdempotencyKey: "k", GeneratedKey: true, Total: 51, Header: &dtaskv1.JobHeader{Name: "j"}}
	var got []*dtaskv1.TaskSpec
	index, messages := uint32(0), 0
	for _, m := range allParts(t, want, first) {
		if head := m.GetIdempotencyKey() == "k" && m.GetGeneratedKey() && m.GetTotal() == 51 && m.GetHeader().GetName() == "j"; head != (messages == 0) {
			t.Errorf("message %d: got head = %v", messages, head)
		}
		messages++
		if len(m.GetTasks()) > 0 && m.GetColumns() != nil {
			t.Error("got a message with both tasks and columns")
		}
		for _, task := range m.GetTasks() {
			if task.GetArray() == nil {
				t.Errorf("%s: got a task without array outside of columns", task.GetId())
			}
		}
		tasks := tasksOf(m, index)
		for _, task := range tasks {
			index++
			if task.GetArray() != nil {
				index += 9
			}
		}
		got = append(got, tasks...)
	}
	if len(got) != len(want) || messages != 4 {
		t.Fatalf("got %d tasks in %d messages, want %d in 4", len(got), messages, len(want))
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("task %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestJobWithoutTasksHasOnePart(t *testing.T) {
	t.Parallel()
	if parts := allParts(t, nil, &dtaskv1.JobPart{IdempotencyKey: "k"}); len(parts) != 1 || parts[0].GetIdempotencyKey() != "k" {
		t.Errorf("got %v", parts)
	}
}

func TestTaskOfAnySizeHasAPart(t *testing.T) {
	t.Parallel()
	large := make([]byte, messageBytes)
	tasks := []*dtaskv1.TaskSpec{
		{Id: "a", Body: &dtaskv1.TaskBody{Payload: large}}, {Id: "b", Body: &dtaskv1.TaskBody{Payload: large}}, {Id: "c", Body: &dtaskv1.TaskBody{}},
	}
	var ids []int
	for _, m := range allParts(t, tasks, &dtaskv1.JobPart{}) {
		ids = append(ids, len(tasksOf(m, 0)))
	}
	if fmt.Sprint(ids) != "[1 1 1]" {
		t.Errorf("got messages of %v tasks", ids)
	}
}

// BenchmarkSmallJob measures the preparation of a job of ten tasks.
func BenchmarkSmallJob(b *testing.B) {
	job := &dtaskv1.JobSpec{Header: &dtaskv1.JobHeader{Name: "x"}}
	for i := range 10 {
		job.Tasks = append(job.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprint("bench-", i), Body: &dtaskv1.TaskBody{Payload: make([]byte, 32)}})
	}
	b.ReportAllocs()
	for b.Loop() {
		u, err := newUpload(Submission{Job: job}, &SubmitResult{})
		if err != nil {
			b.Fatal(err)
		}
		u.start(&submitBatch{})
	}
}

func TestTaskLargerThanAMessageIsInvalid(t *testing.T) {
	t.Parallel()
	parts := newJobParts(&dtaskv1.JobSpec{Tasks: []*dtaskv1.TaskSpec{{Id: "huge", Body: &dtaskv1.TaskBody{Payload: make([]byte, maxSendBytes)}}}}, &dtaskv1.JobPart{})
	if _, _, err := parts.next(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `task "huge"`) {
		t.Errorf("got %v", err)
	}
}
