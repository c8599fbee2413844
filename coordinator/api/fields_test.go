package api

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fullJob has every field of a job in at least one place. Its cleanup task is the last.
func fullJob() *dtaskv1.JobSpec {
	retry := &dtaskv1.RetryPolicy{Max: 3, InitialMs: 100, MultiplierPermille: 2000, MaxDelayMs: 1000, Jitter: true, On: []string{"exit:1"}, Except: []string{"oom"}}
	policy := func(kind string) *dtaskv1.TaskPolicy {
		return &dtaskv1.TaskPolicy{Type: kind, TimeoutMs: 1000, Retry: retry, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE}
	}
	pure, command, cleanup := policy("pure"), policy(""), policy("cleanup")
	pure.Priority, pure.Env, pure.HeartbeatTimeoutMs = dtaskv1.Priority_PRIORITY_HIGH, map[string]string{"A": "1"}, 3000
	pure.QueueTimeoutMs, pure.QueueTimeoutRequeues = 2000, true
	pure.Resources, pure.Require, pure.KillGraceMs, pure.ReuseMs = map[string]int64{"cpu": 500}, map[string]string{"zone": "a"}, 4000, 5000
	pure.Alternatives = []*dtaskv1.ResourceList{{Resources: map[string]int64{"gpu": 1000}}}
	pure.StartTimeoutMs, pure.ExpectMs = 6000, 7000
	pure.Rules = []*dtaskv1.LabelRule{{Name: "gpu", Values: []string{"k80"}, Not: true}}
	pure.Prefer, pure.Place = []*dtaskv1.LabelRule{{Name: "disk", Values: []string{"ssd"}}}, dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_RANDOM
	pure.Affinity, pure.Preemptible = "user/ann", true
	mask := uint32(0o77)
	command.Shell, command.Umask, command.Secrets = []string{"bash", "-c"}, &mask, []string{"db"}
	command.Uses = []string{"db", "tenant/acme"}
	cleanup.Finally = true
	return &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{
			Name: "full", Owner: "me", Namespace: "etl", Queue: "default", Priority: dtaskv1.Priority_PRIORITY_LOW, Env: map[string]string{"B": "2"}, Labels: map[string]string{"team": "data"}, Params: map[string]string{"day": "monday"},
			DeadlineMs: 60_000, OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE, Webhook: "https://example.org/ended", MaxFailures: 2,
			StartAtMs: 7000, StartAfterMs: 8000, ExpiresMs: 9000,
			Concurrency: &dtaskv1.JobConcurrency{Key: "deploy", Limit: 3, Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT},
			Needs:       []*dtaskv1.JobNeed{{Job: 1, Condition: dtaskv1.Condition_CONDITION_ENDED}},
			Policies:    []*dtaskv1.TaskPolicy{policy("plain"), pure, command, cleanup},
		},
		Tasks: []*dtaskv1.TaskSpec{
			{Id: "plain", Body: &dtaskv1.TaskBody{Payload: []byte("p")}},
			{Id: "pure", Policy: 1, Dependencies: []uint32{0}, Conditions: []dtaskv1.Condition{dtaskv1.Condition_CONDITION_ENDED}, Body: &dtaskv1.TaskBody{Payload: []byte("q"), ReuseKey: "key", Output: "/out", Inputs: []string{"/in", "/more"}}},
			{Id: "command", Policy: 2, Body: &dtaskv1.TaskBody{Command: []string{"echo", "x"}}},
			{Id: "run", Policy: 2, Body: &dtaskv1.TaskBody{Run: "echo x", Cwd: "/work", Stdin: "/in"}},
			{Id: "range", Body: &dtaskv1.TaskBody{Payload: []byte(`{"n": "${{ index }}"}`)}, Array: &dtaskv1.ArraySpec{
				Ranges: []*dtaskv1.ArrayRange{{First: 1, Last: 5, Step: 2}}, MaxParallel: 2, JsonPayload: true,
			}},
			{Id: "items", Dependencies: []uint32{1}, Conditions: []dtaskv1.Condition{dtaskv1.Condition_CONDITION_FAILED}, Body: &dtaskv1.TaskBody{Payload: []byte("${{ item }}")}, Array: &dtaskv1.ArraySpec{
				Items: [][]byte{[]byte("1"), []byte("2"), []byte("3")}, ItemsTotal: 3, Chunk: 2,
			}},
			{Id: "cleanup", Policy: 3, Body: &dtaskv1.TaskBody{}},
		},
	}
}

// notInAWholeJob are fields that only parts of a job have. The client's tests cover
// them.
var notInAWholeJob = map[protoreflect.FullName]bool{
	"dtask.v1.ArraySpec.part":     true,
	"dtask.v1.JobNeed.ended_as":   true, // coordinators set it
	"dtask.v1.JobHeader.run":      true, // the same
	"dtask.v1.TaskBody.scheduled": true, // only runs of schedules have it: TestTheRunsOfAScheduleWithExpressionsKnowItsTimeZone
}

// noteFields notes which fields of a message are set, and those of messages in it.
func noteFields(m protoreflect.Message, known, set map[protoreflect.FullName]bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		known[fields.Get(i).FullName()] = true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		set[f.FullName()] = true
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				noteFields(v.List().Get(i).Message(), known, set)
			}
		default:
			noteFields(v.Message(), known, set)
		}
		return true
	})
}

func TestEveryFieldOfAJobReachesItsWorker(t *testing.T) {
	t.Parallel()
	job := fullJob()
	known, set := map[protoreflect.FullName]bool{}, map[protoreflect.FullName]bool{}
	noteFields(job.ProtoReflect(), known, set)
	for field := range known {
		if !set[field] && !notInAWholeJob[field] {
			t.Errorf("field %s is not set by the test", field)
		}
	}
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for _, name := range []string{"db", "tenant/*"} {
		r.leader.op(t, &fsm.SetLimit{Name: name, LimitSettings: fsm.LimitSettings{Running: 1}, AtMS: 1})
	}
	r.submit(t, "needed", task("a"))
	c, err := client.New(client.Config{Addrs: []string{"n1:1"}, Dial: func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Submit(t.Context(), job, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	st, _ := r.machine.Fork()
	stored, _ := st.Job(2)
	if !proto.Equal(stored.Header, job.GetHeader()) {
		t.Errorf("got stored header %v, want %v", stored.Header, job.GetHeader())
	}
	assignments := columns.NewAssignments(8)
	assignments.Contexts = []*dtaskv1.JobContext{{Policies: job.GetHeader().GetPolicies()}}
	index := uint32(0)
	for i, want := range []struct {
		tasks uint32
		array string
	}{{1, ""}, {1, ""}, {1, ""}, {1, ""}, {3, "[1 3 5] max 2 of 1, JSON true"}, {2, "[0=1 1=2 2=3] max 0 of 2, JSON false"}, {1, ""}} {
		ref := fsm.TaskRef{Job: 2, Index: index}
		task := job.GetTasks()[i]
		if got := storedArray(st, ref, want.tasks); got != want.array {
			t.Errorf("task %s: got array %q, want %q", task.GetId(), got, want.array)
		}
		if deps := st.Dependencies(ref); fmt.Sprint(deps) != fmt.Sprint(task.GetDependencies()) {
			t.Errorf("task %s: got dependencies %v, want %v", task.GetId(), deps, task.GetDependencies())
		}
		if when := fsm.ProtoConditions(st.Conditions(ref)); fmt.Sprint(when) != fmt.Sprint(task.GetConditions()) {
			t.Errorf("task %s: got conditions %v, want %v", task.GetId(), when, task.GetConditions())
		}
		if policy := st.Policy(ref); !proto.Equal(policy, job.GetHeader().GetPolicies()[task.GetPolicy()]) {
			t.Errorf("task %s: got policy %v", task.GetId(), policy)
		}
		columns.AddAssignment(assignments, &columns.Assignment{Policy: task.GetPolicy(), Task: index, Attempt: 1, ID: st.Name(ref), Body: st.Body(ref)})
		index += want.tasks
	}
	wantAssigned(t, assignments, job.GetTasks())
}

// storedArray formats the array of some tasks.
func storedArray(st *fsm.State, ref fsm.TaskRef, tasks uint32) string {
	first, ok := st.ArrayTask(ref)
	if !ok {
		return ""
	}
	var items []string
	for range tasks {
		one, _ := st.ArrayTask(ref)
		one.Each(func(index uint32, item []byte) {
			text := fmt.Sprint(index)
			if item != nil {
				text += "=" + string(item)
			}
			items = append(items, text)
		})
		ref.Index++
	}
	return fmt.Sprintf("%v max %d of %d, JSON %v", items, first.MaxParallel, first.Chunk, first.JSON)
}

// wantAssigned compares the bodies that a worker decodes with those that were
// submitted.
func wantAssigned(t *testing.T, sent *dtaskv1.Assignments, want []*dtaskv1.TaskSpec) {
	t.Helper()
	raw, err := proto.Marshal(sent)
	arrived := &dtaskv1.Assignments{}
	if err != nil || proto.Unmarshal(raw, arrived) != nil {
		t.Fatal(err)
	}
	rows, err := columns.ReadAssignments(arrived)
	if err != nil || rows.Left() != len(want) {
		t.Fatalf("got %d assignments, %v; want %d", rows.Left(), err, len(want))
	}
	for _, task := range want {
		row := rows.Next()
		body := &dtaskv1.TaskBody{}
		if err := taskbody.Decode(row.Body, body); err != nil || !proto.Equal(body, task.GetBody()) {
			t.Errorf("task %s: got body %v, %v; want %v", task.GetId(), body, err, task.GetBody())
		}
	}
}
