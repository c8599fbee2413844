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

// plainHeader returns a header whose policy 0 fits payload-only tasks; the
// others do not.
func plainHeader() *dtaskv1.JobHeader {
	plain := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Retry: &dtaskv1.RetryPolicy{}}
	command, pure, last := proto.CloneOf(plain), proto.CloneOf(plain), proto.CloneOf(plain)
	command.Type, pure.ReuseMs, last.Finally = "", 1000, true
	return &dtaskv1.JobHeader{
		Name: "j", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP, Policies: []*dtaskv1.TaskPolicy{plain, command, pure, last},
	}
}

func payloadTaskOf(t *dtaskv1.TaskSpec) PayloadTask {
	return PayloadTask{
		ID: t.GetId(), Policy: t.GetPolicy(), Dependencies: t.GetDependencies(), Payload: t.GetBody().GetPayload(), BodySize: proto.Size(t.GetBody()),
	}
}

func TestPayloadTaskIsCheckedLikeItsTaskSpec(t *testing.T) {
	t.Parallel()
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
				task.Id = []string{"", "a b", strings.Repeat("x", 129), "t0", "\xff", "."}[r.IntN(6)]
			case 1:
				task.Policy = r.Uint32N(6)
			case 2:
				task.Dependencies = append(task.Dependencies, uint32(i)-r.Uint32N(3))
			case 3:
				task.Body.Payload = make([]byte, 1001)
			case 4:
				task.Body.Payload = []byte("${{ item }}") // of an array, which the task isn't
			}
			quick.AddPayloadTask(payloadTaskOf(task))
			got, want := quick.Add(nil), slow.Add([]*dtaskv1.TaskSpec{task})
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, task %d: the faults are\n%v\nwant\n%v", seed, i, got, want)
			}
			if quick.bytes != slow.bytes || quick.tasks != slow.tasks || quick.ordinary != slow.ordinary || quick.dependencies != slow.dependencies {
				t.Fatalf("seed %d, task %d %v: the counts differ: %d bytes, want %d", seed, i, task, quick.bytes, slow.bytes)
			}
		}
		if got, want := quick.Seal(), slow.Seal(); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: sealed, the faults are\n%v\nwant\n%v", seed, got, want)
		}
	}
}

func TestSizeOfAPayloadTaskIsThatOfItsTaskSpec(t *testing.T) {
	t.Parallel()
	for _, task := range []*dtaskv1.TaskSpec{
		{Id: "a", Body: &dtaskv1.TaskBody{}},
		{Id: strings.Repeat("ä", 63), Policy: 1, Body: &dtaskv1.TaskBody{Payload: []byte("p")}},
		{Id: strings.Repeat("ä", 64), Policy: 300, Dependencies: []uint32{0, 127, 128, 1 << 21, 1<<32 - 1}, Body: &dtaskv1.TaskBody{Payload: make([]byte, 70_000)}},
	} {
		if got, want := payloadTaskOf(task).size(), proto.Size(task); got != want {
			t.Errorf("%s has %d bytes, want %d", task.GetId(), got, want)
		}
	}
}

func TestPayloadTaskWithinAnArrayIsAFault(t *testing.T) {
	t.Parallel()
	c := NewChecker(plainHeader(), CheckOptions{})
	if faults := c.Add([]*dtaskv1.TaskSpec{{Id: "map", Body: &dtaskv1.TaskBody{}, Array: &dtaskv1.ArraySpec{Items: [][]byte{[]byte("1")}, ItemsTotal: 2}}}); faults != nil {
		t.Fatal(faults)
	}
	c.AddPayloadTask(PayloadTask{ID: "a"})
	if faults := c.Add(nil); !c.Faulty() || len(faults) != 1 || !strings.Contains(faults.Error(), "part 1 of") {
		t.Errorf("got %v, want that a part of the array is missing", faults)
	}
}

func BenchmarkAddPayloadTask(b *testing.B) {
	const tasks = 10_000
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = fmt.Sprint("task-", i)
	}
	payload := make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		c := NewChecker(plainHeader(), CheckOptions{Total: tasks})
		c.Expect(tasks)
		for i, id := range ids {
			t := PayloadTask{ID: id, Payload: payload, BodySize: 34}
			if i > 0 {
				t.Dependencies = []uint32{uint32(i - 1)}
			}
			c.AddPayloadTask(t)
		}
		if faults := c.Seal(); faults != nil {
			b.Fatal(faults)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks), "ns/task")
}
