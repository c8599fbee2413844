package api

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (r *replica) tasks(t *testing.T, req *dtaskv1.ListTasksRequest) ([]*dtaskv1.ListTasksResponse, error) {
	t.Helper()
	stream, err := r.jobs.ListTasks(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var pages []*dtaskv1.ListTasksResponse
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return pages, nil
		} else if err != nil {
			return nil, err
		}
		pages = append(pages, page)
	}
}

// inAllStates stores job 1 with tasks in all states.
func (r *replica) inAllStates(t *testing.T) {
	t.Helper()
	command, run := task("run", 0), task("command")
	command.Policy, run.Policy = 1, 1
	command.Body, run.Body = &dtaskv1.TaskBody{Run: "exit"}, &dtaskv1.TaskBody{Command: []string{"true"}}
	h := header("x")
	policy := proto.CloneOf(h.GetPolicies()[0])
	policy.Type = ""
	h.OnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
	h.Policies = append(h.Policies, policy)
	tasks := []*dtaskv1.TaskSpec{task("done"), command, run, task("retry"), task("dead"), task("blocked-by-dead", 4), task("held"), task("running")}
	if _, err := r.send(t.Context(), request("k", h, tasks...)); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	r.complete(t, held(1, 0, 1, w), "result")
	for i, next := range map[uint32]fsm.Next{3: fsm.NextRetry, 4: fsm.NextDead} {
		r.assign(t, held(1, i, 1, w))
		r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
			return d.Fail(fsm.FailItem{HeldAttempt: held(1, i, 1, w), Next: next, Due: 9_000_000, CountsAsRetry: true, Error: "exit 1"})
		})
	}
	r.assign(t, held(1, 6, 1, w))
	r.assign(t, held(1, 7, 1, w))
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {7: {Attempt: 1, StartedMS: 77, Permille: 420, Text: "half"}}}
}

func TestTasksAreShownInAllTheirStates(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.inAllStates(t)
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithDependencies: true, WithResults: true})
	if err != nil || len(pages) != 1 {
		t.Fatalf("got %d pages, %v", len(pages), err)
	}
	if f := pages[0].GetFreshness(); f.GetAppliedIndex() != r.machine.Index() {
		t.Errorf("got freshness %v", f)
	}
	want := []*dtaskv1.Task{
		{Id: "done", State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Attempt: 1, Worker: "w1", Type: "noop", Result: []byte("result")},
		{Id: "run", Index: 1, State: dtaskv1.TaskState_TASK_STATE_PENDING, Type: "run", Dependencies: []uint32{0}},
		{Id: "command", Index: 2, State: dtaskv1.TaskState_TASK_STATE_PENDING, Type: "command"},
		{Id: "retry", Index: 3, State: dtaskv1.TaskState_TASK_STATE_SCHEDULED, Attempt: 1, Worker: "w1", Error: "exit 1", Retries: 1, DueAt: 9_000_000, Type: "noop"},
		{Id: "dead", Index: 4, State: dtaskv1.TaskState_TASK_STATE_DEAD, Attempt: 1, Worker: "w1", Error: "exit 1", Type: "noop"},
		{Id: "blocked-by-dead", Index: 5, State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Error: "dependency dead failed", Type: "noop", Dependencies: []uint32{4}},
		{Id: "held", Index: 6, State: dtaskv1.TaskState_TASK_STATE_ASSIGNED, Attempt: 1, Worker: "w1", Type: "noop"},
		{Id: "running", Index: 7, State: dtaskv1.TaskState_TASK_STATE_RUNNING, Attempt: 1, Worker: "w1", Type: "noop", ProgressPermille: 420, ProgressText: "half"},
	}
	times := protocmp.IgnoreFields(&dtaskv1.Task{}, "started_at", "completed_at")
	if diff := cmp.Diff(want, pages[0].GetTasks(), protocmp.Transform(), times); diff != "" {
		t.Error(diff)
	}
	if got := pages[0].GetTasks()[7].GetStartedAt(); got != 77 {
		t.Errorf("running task: got start %d, want 77", got)
	}
	// Dependencies and results are shown only on request.
	pages, err = r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", Task: "blocked-by-dead"})
	if err != nil || len(pages) != 1 || len(pages[0].GetTasks()) != 1 || pages[0].GetTasks()[0].GetDependencies() != nil {
		t.Errorf("got %v, %v; want only the last task", pages, err)
	}
}

func TestRetriesAreFailuresAndLossesOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end               func(h fsm.HeldAttempt) func(*fsm.EntryBuilder) fsm.Reason
		retries, requeues uint32
	}{
		"released, drained, stolen or not begun": {func(h fsm.HeldAttempt) func(*fsm.EntryBuilder) fsm.Reason {
			return func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(h, false) }
		}, 0, 2},
		"lost with its worker": {func(h fsm.HeldAttempt) func(*fsm.EntryBuilder) fsm.Reason {
			return func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(h, true) }
		}, 2, 0},
		"failed": {func(h fsm.HeldAttempt) func(*fsm.EntryBuilder) fsm.Reason {
			return func(d *fsm.EntryBuilder) fsm.Reason {
				r := d.Fail(fsm.FailItem{HeldAttempt: h, Next: fsm.NextRetry, CountsAsRetry: true, Error: "exit 1"})
				d.Do(&fsm.Due{Items: []fsm.AttemptRef{h.AttemptRef}})
				return r
			}
		}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			r.submit(t, "x", task("a"))
			w := r.worker(t)
			for attempt := uint32(1); attempt < 3; attempt++ {
				r.assign(t, held(1, 0, attempt, w))
				r.leader.do(c.end(held(1, 0, attempt, w)))
			}
			r.assign(t, held(1, 0, 3, w))
			pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
			if err != nil {
				t.Fatal(err)
			}
			if got := pages[0].GetTasks()[0]; got.GetRetries() != c.retries || got.GetAttempt() != 3 {
				t.Errorf("got %v, want attempt 3 with %d retries", got, c.retries)
			}
			job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1"})
			if err != nil || job.GetRetries() != uint64(c.retries) || job.GetRequeues() != uint64(c.requeues) {
				t.Errorf("got job %v, %v; want %d retries, %d requeues", job, err, c.retries, c.requeues)
			}
		})
	}
}

// A task that a worker gave back, or that made way for an urgent one, may never have started: the
// log knows only when it was assigned.
func TestATaskThatWaitsAgainHasTheStartOfAnAttemptThatFailedOnly(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("requeued"), task("failed"), task("failed-then-requeued"), task("due"))
	w := r.worker(t)
	fail := func(h fsm.HeldAttempt, due bool) {
		t.Helper()
		r.assign(t, h)
		r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
			reason := d.Fail(fsm.FailItem{HeldAttempt: h, Next: fsm.NextRetry, Due: 9_000_000, CountsAsRetry: true, Error: "exit 1"})
			if due {
				d.Do(&fsm.Due{Items: []fsm.AttemptRef{h.AttemptRef}})
			}
			return reason
		})
	}
	requeue := func(h fsm.HeldAttempt) {
		t.Helper()
		r.assign(t, h)
		r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Requeue(h, false) })
	}
	requeue(held(1, 0, 1, w))
	fail(held(1, 1, 1, w), true)
	fail(held(1, 2, 1, w), true)
	requeue(held(1, 2, 2, w))
	fail(held(1, 3, 1, w), false)
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		attempt uint32
		started bool
	}{{1, false}, {1, true}, {2, false}, {1, true}} {
		if x := pages[0].GetTasks()[i]; x.GetAttempt() != want.attempt || (x.GetStartedAt() > 0) != want.started {
			t.Errorf("got %v, want attempt %d, with its start: %t", x, want.attempt, want.started)
		}
	}
}

func TestTasksAreSentInBoundedPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var tasks []*dtaskv1.TaskSpec
	for i := range 2500 {
		tasks = append(tasks, task(fmt.Sprint("t", i)))
	}
	r.submit(t, "x", tasks...)
	w := r.worker(t)
	large := make([]byte, 4096)
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		for i := range uint32(2500) {
			d.Assign(fsm.AssignItem(held(1, i, 1, w)))
			d.Complete(fsm.CompleteItem{HeldAttempt: held(1, i, 1, w), Result: large})
		}
		return fsm.Accepted
	})
	for _, c := range []struct {
		results bool
		pages   int
	}{{false, 3}, {true, 10}} {
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithResults: c.results})
		if err != nil {
			t.Fatal(err)
		}
		next := uint32(0)
		for i, page := range pages {
			if n := len(page.GetTasks()); n > maxPageTasks || proto.Size(page) > maxPageBytes+maxPageBytes/8 {
				t.Errorf("page %d: got %d tasks in %d bytes", i, n, proto.Size(page))
			}
			if (page.GetFreshness() != nil) != (i == 0) {
				t.Errorf("page %d: got freshness %v, want it only in the first", i, page.GetFreshness())
			}
			for _, got := range page.GetTasks() {
				if got.GetIndex() != next || got.GetState() != dtaskv1.TaskState_TASK_STATE_AGGREGATED {
					t.Fatalf("got %v, want task %d, aggregated", got, next)
				}
				next++
			}
		}
		if next != 2500 || len(pages) < c.pages {
			t.Errorf("got %d tasks in %d pages, want 2500 in at least %d", next, len(pages), c.pages)
		}
	}
}

func TestTasksOfUnknownJobsAreNotFound(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	for _, req := range []*dtaskv1.ListTasksRequest{{Job: "x"}, {Job: "2"}, {Job: "1", Task: "z"}} {
		_, err := r.tasks(t, req)
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}

func TestTheResultHasTheTerminalTasksInOrder(t *testing.T) {
	t.Parallel()
	r := setup(t)
	tasks := append(diamond(), task("alone"))
	tasks[3].Body.Output = "/out/d"
	r.submit(t, "x", tasks...)
	w := r.worker(t)
	for i := range uint32(3) {
		r.complete(t, held(1, i, 1, w), "inner")
	}
	r.assign(t, held(1, 3, 1, w))
	sum := make([]byte, 32)
	sum[0] = 0xab
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		return d.Complete(fsm.CompleteItem{HeldAttempt: held(1, 3, 1, w), Result: []byte("D"), OutputSize: 12, OutputSHA256: sum})
	})
	result := func() *dtaskv1.GetResultResponse {
		t.Helper()
		resp, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1"})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	d := &dtaskv1.TaskResult{
		Task: "d", State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte("D"), Output: "/out/d", OutputSize: 12,
		OutputSha256: "ab00000000000000000000000000000000000000000000000000000000000000",
	}
	alone := &dtaskv1.TaskResult{Task: "alone", State: dtaskv1.TaskState_TASK_STATE_PENDING}
	before := result()
	if diff := cmp.Diff([]*dtaskv1.TaskResult{d, alone}, before.GetResults(), protocmp.Transform()); diff != "" {
		t.Errorf("before the end: %s", diff)
	}
	if before.GetJob().GetState() != dtaskv1.JobState_JOB_STATE_RUNNING {
		t.Errorf("got %v", before.GetJob())
	}
	r.complete(t, held(1, 4, 1, w), "A")
	d.State = dtaskv1.TaskState_TASK_STATE_AGGREGATED
	alone.State, alone.Result = dtaskv1.TaskState_TASK_STATE_AGGREGATED, []byte("A")
	after := result()
	if diff := cmp.Diff([]*dtaskv1.TaskResult{d, alone}, after.GetResults(), protocmp.Transform()); diff != "" {
		t.Errorf("after the end: %s", diff)
	}
	if got := after.GetJob().GetTasksByState()["aggregated"]; got != 2 {
		t.Errorf("got %d aggregated tasks, want 2", got)
	}
	inner, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1", Task: "b"})
	if got := inner.GetResults(); err != nil || len(got) != 1 || got[0].GetTask() != "b" || string(got[0].GetResult()) != "inner" || inner.GetNext() != 0 {
		t.Errorf("a task with dependents: got %v, %v", inner, err)
	}
	_, err = r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1", Task: "nobody"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	for _, id := range []string{"x", "2"} {
		_, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: id})
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}
