package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// archiveOne moves job 1 to the file.
func (r *replica) archiveOne(t *testing.T, h *history.History) {
	t.Helper()
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}})
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
}

// fail assigns a task and ends its attempt as failed.
func (r *replica) fail(t *testing.T, h fsm.HeldAttempt, next fsm.Next, text string) {
	t.Helper()
	r.assign(t, h)
	fail := fsm.FailItem{HeldAttempt: h, Next: next, CountsAsRetry: next == fsm.NextRetry, Error: text}
	if got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Fail(fail) }); got != fsm.Accepted {
		t.Fatal(got)
	}
}

// endings submit job 1 and bring it to its end, each in another way.
var endings = map[string]func(t *testing.T, r *replica, w fsm.WorkerID){
	"completed after a failed attempt": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		h := header("x")
		h.Owner, h.Labels = "me", map[string]string{"team": "data"}
		if _, err := r.send(t.Context(), request("k", h, diamond()...)); err != nil {
			t.Fatal(err)
		}
		r.fail(t, held(1, 0, 1, w), fsm.NextRetry, "exit 1")
		r.leader.op(t, &fsm.Due{Items: []fsm.AttemptRef{held(1, 0, 1, w).AttemptRef}})
		for i, attempt := range []uint32{2, 1, 1, 1} {
			r.complete(t, held(1, uint32(i), attempt, w), fmt.Sprint("result ", i))
		}
	},
	"completed with tolerated failures, and updated": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		h := header("x")
		h.OnFailure, h.MaxFailures = dtaskv1.OnFailure_ON_FAILURE_CONTINUE, 2
		if _, err := r.send(t.Context(), request("k", h, task("a"), task("b"), task("c"), task("d"))); err != nil {
			t.Fatal(err)
		}
		r.leader.op(t, &fsm.Update{Job: 1, WholeJob: true, Set: fsm.SetPriority, Priority: dtaskv1.Priority_PRIORITY_URGENT})
		r.complete(t, held(1, 0, 1, w), "")
		r.fail(t, held(1, 1, 1, w), fsm.NextFailed, "bad input")
		r.fail(t, held(1, 2, 1, w), fsm.NextDead, "exit 7")
		r.complete(t, held(1, 3, 1, w), "")
	},
	"failed, with more tasks than a summary has": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		var tasks []*dtaskv1.TaskSpec
		for i := range uint32(2*maxSummaryTasks + 50) {
			if t := task(fmt.Sprint("t", i)); i < 200 {
				tasks = append(tasks, t)
			} else {
				tasks = append(tasks, task(fmt.Sprint("t", i), i-200, i-1))
			}
		}
		r.submit(t, "x", tasks...)
		for i := range uint32(190) {
			r.complete(t, held(1, i, 1, w), "")
		}
		r.fail(t, held(1, 195, 1, w), fsm.NextDead, strings.Repeat("long ", 200))
	},
	"cancelled": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		r.submit(t, "x", diamond()...)
		r.complete(t, held(1, 0, 1, w), "")
		r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "not needed"})
	},
	"cancelled with a cleanup task": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		h, last := header("x"), task("cleanup")
		finally := proto.CloneOf(h.GetPolicies()[0])
		finally.Finally = true
		h.Policies, last.Policy = append(h.Policies, finally), 1
		if _, err := r.send(t.Context(), request("k", h, task("a"), task("b", 0), last)); err != nil {
			t.Fatal(err)
		}
		r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "not needed"})
		r.complete(t, held(1, 2, 1, w), "")
	},
	"arrays, completed": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		r.submitArrays(t, 20, task("a"), ranged("small", 3), task("b"), task("c"), ranged("large", 1, 0), ranged("tiny", 5), task("z", 1))
		for i := range uint32(20) {
			r.complete(t, held(1, i, 1, w), "")
		}
	},
	"arrays, failed": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		r.submitArrays(t, 20, task("a"), ranged("small", 3), task("b"), task("c"), ranged("large", 1), ranged("tiny", 5), task("z", 1))
		r.complete(t, held(1, 8, 1, w), "")
		r.fail(t, held(1, 9, 1, w), fsm.NextDead, "exit 3")
	},
	"reused": func(t *testing.T, r *replica, w fsm.WorkerID) {
		t.Helper()
		pure := func(id string) *dtaskv1.TaskSpec {
			one := task(id)
			one.Body = &dtaskv1.TaskBody{ReuseKey: "key"}
			return one
		}
		h := header("x")
		h.GetPolicies()[0].ReuseMs = 1_000_000
		if _, err := r.send(t.Context(), request("k", h, pure("first"), pure("second"))); err != nil {
			t.Fatal(err)
		}
		first := fsm.TaskRef{Job: 1}
		r.complete(t, held(1, 0, 1, w), "result")
		r.leader.op(t,
			&fsm.RememberResults{Items: []fsm.RememberItem{{Task: first, Expires: 9_000_000}}},
			&fsm.ReuseResults{Items: []fsm.TaskRef{{Job: 1, Index: 1}}})
	},
}

// statusRequests are the requests that a summary may answer, all for job 1.
func statusRequests() (list []*dtaskv1.ListTasksRequest) {
	for _, limit := range []uint32{1, 3, maxSummaryTasks, maxPageTasks} {
		for _, brief := range []bool{false, true} {
			for _, withJob := range []bool{false, true} {
				list = append(list, &dtaskv1.ListTasksRequest{Job: "1", MostUrgent: limit, Brief: brief, WithJob: withJob})
			}
		}
	}
	return list
}

// statusOf reads job 1 in every way that may use a summary. It leaves out the index of
// the state.
func (r *replica) statusOf(t *testing.T) (list []proto.Message) {
	t.Helper()
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil {
		t.Fatal(err)
	}
	job.Freshness = nil
	list = append(list, job)
	for _, req := range statusRequests() {
		pages, err := r.tasks(t, req)
		if err != nil || len(pages) != 1 || pages[0].GetFreshness().GetAppliedIndex() != r.machine.Index() {
			t.Fatalf("%v: got %v, %v", req, pages, err)
		}
		pages[0].Freshness = nil
		if job := pages[0].GetJob(); job != nil {
			job.Freshness = nil
		}
		list = append(list, pages[0])
	}
	return list
}

// compare compares what two calls of statusOf returned.
func compare(t *testing.T, when string, got, want []proto.Message) {
	t.Helper()
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("%s: got\n%v\nwant\n%v", when, got[i], want[i])
		}
	}
}

func TestAJobIsShownTheSameWithAndWithoutItsSummary(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, summarize := range map[string]func(*fsm.ArchivedJob) []byte{
				"with": encodeSummary, "without": nil,
				"of another version": func(a *fsm.ArchivedJob) []byte { return append([]byte{summaryFormat + 1}, encodeSummary(a)[1:]...) },
				"unreadable":         func(*fsm.ArchivedJob) []byte { return []byte{summaryFormat, 0xff} },
			} {
				h, change := withHistory(t, true, summarize)
				r := setup(t, change)
				w := r.worker(t)
				end(t, r, w)
				want := r.statusOf(t)
				r.archiveOne(t, h)
				r.leader.op(t, &fsm.MarkWorkerDown{ID: w}, &fsm.ForgetWorkers{IDs: []fsm.WorkerID{w}})
				_, summary, err := h.Summary(1)
				if err != nil || (summary != nil) != (summarize != nil) {
					t.Fatalf("%s: got a summary of %d bytes, %v", kind, len(summary), err)
				}
				compare(t, kind, r.statusOf(t), want)
			}
		})
	}
}

// A summary that shows what its job does not have makes its use visible.
func TestOnlyAStatusIsAnsweredFromTheSummary(t *testing.T) {
	t.Parallel()
	const mark = 77
	h, change := withHistory(t, true, func(*fsm.ArchivedJob) []byte {
		page := &dtaskv1.ListTasksResponse{Selected: mark, Job: &dtaskv1.Job{Levels: []uint32{mark}}}
		for i := range uint32(maxSummaryTasks) {
			page.Tasks = append(page.Tasks, &dtaskv1.Task{Id: fmt.Sprint("marked ", i)})
		}
		b, err := proto.Marshal(page)
		if err != nil {
			t.Error(err)
		}
		return append([]byte{summaryFormat}, b...)
	})
	r := setup(t, change)
	r.submit(t, "x", diamond()...)
	r.leader.op(t, &fsm.CancelJob{Job: 1})
	r.archiveOne(t, h)
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil || !slices.Equal(job.GetLevels(), []uint32{mark}) {
		t.Errorf("got %v, %v", job, err)
	}
	for _, c := range []struct {
		req  *dtaskv1.ListTasksRequest
		uses bool
	}{
		{&dtaskv1.ListTasksRequest{MostUrgent: 1}, true},
		{&dtaskv1.ListTasksRequest{MostUrgent: maxSummaryTasks, WithJob: true, Brief: true, Consistency: stale}, true},
		{&dtaskv1.ListTasksRequest{MostUrgent: maxSummaryTasks + 1}, false},
		{&dtaskv1.ListTasksRequest{}, false},
		{&dtaskv1.ListTasksRequest{WithJob: true}, false},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, Task: "a"}, false},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, States: []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_CANCELLED}}, false},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, WithDependencies: true}, false},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, WithResults: true}, false},
		{&dtaskv1.ListTasksRequest{MostUrgent: 1, WithHistory: true}, false},
	} {
		c.req.Job = "1"
		pages, err := r.tasks(t, c.req)
		if err != nil || len(pages) != 1 {
			t.Fatalf("%v: got %v, %v", c.req, pages, err)
		}
		if uses := strings.HasPrefix(pages[0].GetTasks()[0].GetId(), "marked"); uses != c.uses {
			t.Errorf("%v: answered from the summary is %t, want %t", c.req, uses, c.uses)
		}
	}
}

func TestOnlyLargeJobsGetASummary(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{10: false, 8000: true} {
		h, change := withHistory(t, true, Summarize)
		r := setup(t, change)
		tasks := make([]*dtaskv1.TaskSpec, n)
		for i := range tasks {
			tasks[i] = task(fmt.Sprint("t", i))
		}
		r.submit(t, "x", tasks...)
		r.leader.op(t, &fsm.CancelJob{Job: 1})
		before := r.statusOf(t)
		r.archiveOne(t, h)
		_, summary, err := h.Summary(1)
		if err != nil || (len(summary) > 0) != want {
			t.Errorf("%d tasks: got a summary of %d bytes, %v", n, len(summary), err)
		}
		if len(summary) > 16<<10 {
			t.Errorf("%d tasks: the summary has %d bytes", n, len(summary))
		}
		compare(t, fmt.Sprint(n, " tasks"), r.statusOf(t), before)
	}
}

// shownFields are what a summary knows of ended tasks and arrays. Before you add a field
// here that is set when they have ended, raise summaryFormat: jobs of history would be
// shown without it.
var shownFields = map[string][]string{
	"Task": {
		"id", "index", "state", "attempt", "worker", "error", "started_at", "completed_at", "retries", "due_at", "dependencies", "conditions", "finally", "type",
		"progress_permille", "progress_text", "result", "history", "checkpoint_at", "reused_job", "reused_task", "array", "pending_reason",
		"key_worker", "spilled_from", "spilled_permille",
	},
	"ArrayStatus": {"id", "first", "tasks", "items", "max_parallel", "tasks_by_state", "pending_reason"},
}

func TestANewFieldOfATaskRaisesTheFormatOfSummaries(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{new(dtaskv1.Task), new(dtaskv1.ArrayStatus)} {
		d := m.ProtoReflect().Descriptor()
		var got []string
		for i := range d.Fields().Len() {
			got = append(got, string(d.Fields().Get(i).Name()))
		}
		want := shownFields[string(d.Name())]
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s has the fields %v, and a summary of format %d %v: see summaryFormat", d.Name(), got, summaryFormat, want)
		}
	}
}
