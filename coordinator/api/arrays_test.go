package api

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ranged is an array of the indexes 1 to 10 with chunks of this size.
func ranged(id string, chunk uint32, deps ...uint32) *dtaskv1.TaskSpec {
	t := task(id, deps...)
	t.Array = &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{First: 1, Last: 10, Step: 1}}, Chunk: chunk}
	return t
}

// submitArrays stores a job of tasks and arrays and returns its id.
func (r *replica) submitArrays(t *testing.T, total uint32, tasks ...*dtaskv1.TaskSpec) fsm.JobID {
	t.Helper()
	req := request("k", header("x"), tasks...)
	req.Total = total
	resp, err := r.send(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	id, err := parseJobID(resp.GetId())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// named lists the ids of the requested tasks.
func (r *replica) named(t *testing.T, req *dtaskv1.ListTasksRequest) []string {
	t.Helper()
	req.Job = "1"
	pages, err := r.tasks(t, req)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, page := range pages {
		for _, one := range page.GetTasks() {
			ids = append(ids, one.GetId())
		}
	}
	return ids
}

func TestAnArrayIsListedWholeBriefAndByState(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.submitArrays(t, 12, task("a"), ranged("run", 0, 0), task("z", 1))
	w := r.worker(t)
	r.complete(t, held(id, 0, 1, w), "")
	r.complete(t, held(id, 1, 1, w), "")
	for _, i := range []uint32{2, 3, 4} {
		r.assign(t, held(id, i, 1, w))
	}
	fail := fsm.FailItem{HeldAttempt: held(id, 3, 1, w), Next: fsm.NextDead, Error: "exit 1"}
	if got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Fail(fail) }); got != fsm.Accepted {
		t.Fatal(got)
	}
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{id: {2: {Attempt: 1}}}

	if got := r.named(t, &dtaskv1.ListTasksRequest{}); len(got) != 12 || got[0] != "a" || got[1] != "run[1]" || got[10] != "run[10]" || got[11] != "z" {
		t.Errorf("all: %v", got)
	}
	if got, want := r.named(t, &dtaskv1.ListTasksRequest{Brief: true}), []string{"a", "run[2]", "run[3]", "z"}; !slices.Equal(got, want) {
		t.Errorf("brief: %v, want %v", got, want)
	}
	states := []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_DEAD}
	if got, want := r.named(t, &dtaskv1.ListTasksRequest{States: states}), []string{"a", "run[1]", "run[3]"}; !slices.Equal(got, want) {
		t.Errorf("by state: got %v, want %v", got, want)
	}
	if got := r.named(t, &dtaskv1.ListTasksRequest{Task: "run"}); len(got) != 10 {
		t.Errorf("the array: got %v", got)
	}
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil || len(job.GetArrays()) != 1 {
		t.Fatalf("got %v, %v", job, err)
	}
	want := map[string]uint32{"completed": 1, "dead": 1, "running": 1, "assigned": 1, "cancelled": 6}
	if got := job.GetArrays()[0]; got.GetId() != "run" || got.GetTasks() != 10 || got.GetItems() != 10 || !maps.Equal(got.GetTasksByState(), want) {
		t.Errorf("got array %v, want %v", got, want)
	}
}

func TestEachArrayCountsItsOwnTasks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	// Tasks before, between and behind three arrays of 4, 10 and 2 tasks.
	id := r.submitArrays(t, 20, task("a"), ranged("small", 3), task("b"), task("c"), ranged("large", 1), ranged("tiny", 5), task("z"))
	w := r.worker(t)
	for _, i := range []uint32{0, 1, 5, 8, 9, 10, 17, 19} {
		r.complete(t, held(id, i, 1, w), "")
	}
	running := map[uint32]sequencer.Observation{9: {Attempt: 1}}
	for _, i := range []uint32{2, 6, 11, 12, 18} {
		r.assign(t, held(id, i, 1, w))
		running[i] = sequencer.Observation{Attempt: 1}
	}
	r.assign(t, held(id, 13, 1, w))
	running[13] = sequencer.Observation{Attempt: 2} // of another attempt
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{id: running}

	want := make(map[string]map[string]uint32)
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var brief []string
	for _, page := range pages {
		for _, one := range page.GetTasks() {
			name := strings.ToLower(strings.TrimPrefix(one.GetState().String(), "TASK_STATE_"))
			if a := one.GetArray(); a != "" {
				if want[a] == nil {
					want[a] = make(map[string]uint32)
				}
				want[a][name]++
			}
			if one.GetArray() == "" || name == "running" {
				brief = append(brief, one.GetId())
			}
		}
	}
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil || len(job.GetArrays()) != 3 {
		t.Fatalf("got %v, %v", job, err)
	}
	for _, got := range job.GetArrays() {
		if !maps.Equal(got.GetTasksByState(), want[got.GetId()]) {
			t.Errorf("got array %v, want %v", got, want[got.GetId()])
		}
	}
	if got := r.named(t, &dtaskv1.ListTasksRequest{Brief: true}); !slices.Equal(got, brief) {
		t.Errorf("brief: got %v, want %v", got, brief)
	}
	pages, err = r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithJob: true, MostUrgent: 1})
	if err != nil || len(pages) != 1 || !proto.Equal(pages[0].GetJob(), job) {
		t.Errorf("got %v, %v; want the job as it is read alone, %v", pages, err, job)
	}
}

func TestTheResultsOfAnArrayComeInPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	const n = 1000
	t1 := task("run")
	t1.Array = &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{First: 1, Last: n, Step: 1}}, Chunk: 1}
	id := r.submitArrays(t, n+2, task("a"), t1, task("z", 1))
	w := r.worker(t)
	for i := range uint32(n) {
		r.complete(t, held(id, 1+i, 1, w), strings.Repeat("x", 4000)+fmt.Sprint(i))
	}
	got, pages := 0, 0
	req := &dtaskv1.GetResultRequest{Job: "1", Task: "run"}
	for {
		page, err := r.jobs.GetResult(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, one := range page.GetResults() {
			if want := fmt.Sprintf("run[%d]", got+1); one.GetTask() != want || !strings.HasSuffix(string(one.GetResult()), "x"+fmt.Sprint(got)) {
				t.Fatalf("got %s with %d bytes, want %s", one.GetTask(), len(one.GetResult()), want)
			}
			got++
		}
		if req.From = page.GetNext(); req.GetFrom() == 0 {
			break
		}
	}
	if got != n || pages < 4 {
		t.Errorf("got %d results in %d pages, want %d", got, pages, n)
	}
	some, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1", Task: "run[5-7]"})
	if err != nil || len(some.GetResults()) != 3 || some.GetResults()[0].GetTask() != "run[5]" {
		t.Errorf("run[5-7]: got %v, %v", some, err)
	}
}

func TestATaskOfAnArrayIsNamedByAnyOfItsItems(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submitArrays(t, 3, ranged("run", 4)) // run[1-4], run[5-8], run[9-10]
	for name, want := range map[string][]string{
		"run[1-4]": {"run[1-4]"}, "run[2]": {"run[1-4]"}, "run[10]": {"run[9-10]"}, "run[0-3]": {"run[1-4]"},
		"run[4-5]": {"run[1-4]", "run[5-8]"}, "run[0-99]": {"run[1-4]", "run[5-8]", "run[9-10]"}, "run": {"run[1-4]", "run[5-8]", "run[9-10]"},
	} {
		if got := r.named(t, &dtaskv1.ListTasksRequest{Task: name}); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"run[11]": "has run[1-4] to run[9-10]", "run[20-30]": "has run[1-4] to run[9-10]", "walk[1]": "not found",
	} {
		_, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", Task: name})
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to contain %q", name, err, want)
		}
	}
}

// A call for one task lists the tasks if a name means several of them or a part of one.
func TestAnAmbiguousTaskNameListsTheTasks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submitArrays(t, 3, ranged("run", 4))
	for name, want := range map[string]string{"run[0-3]": "to run[1-4]", "run[4-6]": "to run[1-4] to run[5-8]", "run[77]": "has run[1-4] to run[9-10]"} {
		_, logs := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: name})
		_, cancel := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1", Task: name})
		_, retry := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{name}, IdempotencyKey: rand.Text()})
		for what, err := range map[string]error{"logs": logs, "cancel": cancel, "retry": retry} {
			wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: got %v, want it to contain %q", what, name, err, want)
			}
		}
	}
	if _, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "run"}); err == nil || !strings.Contains(err.Error(), "is an array") {
		t.Errorf("logs of a whole array: got %v", err)
	}
	if _, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1", Task: "run[6]"}); err != nil { // by an item of its chunk
		t.Error(err)
	}
	if _, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"run[7]"}, IdempotencyKey: rand.Text()}); err != nil { // the same chunk
		t.Error(err)
	}
}

// Items may arrive in any number of parts and make the same tasks.
func TestItemsOfAnArrayArriveInParts(t *testing.T) {
	t.Parallel()
	r := setup(t)
	items := func(from, to int) (list [][]byte) {
		for i := from; i < to; i++ {
			list = append(list, fmt.Appendf(nil, "%q", fmt.Sprint("item ", i)))
		}
		return list
	}
	first := task("run")
	first.Array = &dtaskv1.ArraySpec{Items: items(0, 4), ItemsTotal: 9, Chunk: 2}
	rest := &dtaskv1.TaskSpec{Id: "run", Array: &dtaskv1.ArraySpec{Items: items(4, 9), Part: 1}}
	one, two := request("k", header("x"), first), &dtaskv1.JobPart{Tasks: []*dtaskv1.TaskSpec{rest}}
	one.Total = 5
	if _, err := r.send(t.Context(), one, two); err != nil {
		t.Fatal(err)
	}
	if got := r.named(t, &dtaskv1.ListTasksRequest{}); !slices.Equal(got, []string{"run[0-1]", "run[2-3]", "run[4-5]", "run[6-7]", "run[8-8]"}) {
		t.Errorf("got %v", got)
	}
	st, _ := r.machine.Fork()
	var got []string
	for i := range uint32(5) {
		a, _ := st.ArrayTask(fsm.TaskRef{Job: 1, Index: i})
		a.Each(func(_ uint32, item []byte) { got = append(got, string(item)) })
	}
	if len(got) != 9 || got[0] != `"item 0"` || got[8] != `"item 8"` {
		t.Errorf("got items %v", got)
	}
}
