package spec

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// plainHeader is a header of which policy 0 is plain and the others are not.
func plainHeader() *dtaskv1.JobHeader {
	plain := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Retry: &dtaskv1.RetryPolicy{}}
	command, pure, last := proto.CloneOf(plain), proto.CloneOf(plain), proto.CloneOf(plain)
	command.Type, pure.ReuseMs, last.Finally = "", 1000, true
	return &dtaskv1.JobHeader{
		Name: "j", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP, Policies: []*dtaskv1.TaskPolicy{plain, command, pure, last},
	}
}

// plainOf is what AddPlain is told of a task.
func plainOf(t *dtaskv1.TaskSpec) PlainTask {
	return PlainTask{ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Payload: len(t.GetBody().GetPayload()), Body: proto.Size(t.GetBody())}
}

func TestAPlainTaskIsCheckedAsItsMessageIs(t *testing.T) {
	t.Parallel()
	added := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		opt := CheckOptions{MaxPayload: 1000}
		quick, slow := NewChecker(plainHeader(), opt), NewChecker(plainHeader(), opt)
		for i := range 50 {
			task := &dtaskv1.TaskSpec{Id: fmt.Sprint("t", i), Body: &dtaskv1.TaskBody{Payload: make([]byte, r.IntN(300))}}
			for d := range uint32(r.IntN(i + 1)) {
				if r.IntN(5) == 0 {
					task.Dependencies = append(task.Dependencies, d)
				}
			}
			switch r.IntN(200) {
			case 0:
				task.Id = []string{"", "a b", strings.Repeat("x", 64), "t0", "\xff", "."}[r.IntN(6)]
			case 1:
				task.Policy = r.Uint32N(6)
			case 2:
				task.Dependencies = append(task.Dependencies, uint32(i)-r.Uint32N(3))
			case 3:
				task.Body.Payload = make([]byte, 1001)
			}
			if quick.AddPlain(plainOf(task)) {
				added++
			} else {
				_ = quick.Add([]*dtaskv1.TaskSpec{task})
			}
			got, want := quick.Add(nil), slow.Add([]*dtaskv1.TaskSpec{task})
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, task %d: the faults are\n%v\nwant\n%v", seed, i, got, want)
			}
			if quick.bytes != slow.bytes || quick.tasks != slow.tasks || quick.ordinary != slow.ordinary || quick.dependencies != slow.dependencies {
				t.Fatalf("seed %d, task %d: the counts differ", seed, i)
			}
		}
		if got, want := quick.Seal(), slow.Seal(); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: sealed, the faults are\n%v\nwant\n%v", seed, got, want)
		}
	}
	if added < 5000 {
		t.Errorf("%d of 15000 tasks were added as plain ones, want most", added)
	}
}

func TestTheSizeOfAPlainTaskIsThatOfItsMessage(t *testing.T) {
	t.Parallel()
	for _, task := range []*dtaskv1.TaskSpec{
		{Id: "a", Body: &dtaskv1.TaskBody{}},
		{Id: strings.Repeat("ä", 63), Policy: 1, Body: &dtaskv1.TaskBody{Payload: []byte("p")}},
		{Id: strings.Repeat("ä", 64), Policy: 300, Dependencies: []uint32{0, 127, 128, 1 << 21, 1<<32 - 1}, Body: &dtaskv1.TaskBody{Payload: make([]byte, 70_000)}},
	} {
		if got, want := plainOf(task).size(), proto.Size(task); got != want {
			t.Errorf("%s has %d bytes, want %d", task.GetId(), got, want)
		}
	}
}

func TestAPlainTaskIsNotAddedWithinAnArray(t *testing.T) {
	t.Parallel()
	c := NewChecker(plainHeader(), CheckOptions{})
	if faults := c.Add([]*dtaskv1.TaskSpec{{Id: "map", Body: &dtaskv1.TaskBody{}, Array: &dtaskv1.ArraySpec{Items: [][]byte{[]byte("1")}, ItemsTotal: 2}}}); faults != nil {
		t.Fatal(faults)
	}
	if c.AddPlain(PlainTask{ID: "a"}) {
		t.Error("a task was added while a part of an array is missing")
	}
}
