package api

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fails assigns an attempt and fails it.
func (r *replica) fails(t *testing.T, h fsm.HeldAttempt, next fsm.Next, why string) {
	t.Helper()
	r.assign(t, h)
	got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		return d.Fail(fsm.FailItem{HeldAttempt: h, Next: next, Due: 1, CountsAsRetry: true, Error: why})
	})
	if got != fsm.Accepted {
		t.Fatalf("failing %v: %v", h, got)
	}
}

func (r *replica) deadLetters(t *testing.T, req *dtaskv1.ListDeadLettersRequest) (ids []string, pages int) {
	t.Helper()
	req = proto.CloneOf(req)
	for {
		resp, err := r.jobs.ListDeadLetters(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, l := range resp.GetDeadLetters() {
			ids = append(ids, l.GetJob()+"/"+l.GetTask())
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return ids, pages
		}
	}
}

// mixed stores a job that continues after failures, with tasks of type noop and
// commands (policy 1).
func (r *replica) mixed(t *testing.T, name string, tasks ...*dtaskv1.TaskSpec) {
	t.Helper()
	h := header(name)
	h.Owner, h.OnFailure = "ada", dtaskv1.OnFailure_ON_FAILURE_CONTINUE
	policy := proto.CloneOf(h.GetPolicies()[0])
	policy.Type = ""
	h.Policies = append(h.Policies, policy)
	if _, err := r.send(t.Context(), request(name, h, tasks...)); err != nil {
		t.Fatal(err)
	}
}

func command(id string) *dtaskv1.TaskSpec {
	return &dtaskv1.TaskSpec{Id: id, Policy: 1, Body: &dtaskv1.TaskBody{Command: []string{"false"}}}
}

func TestDeadLettersAreListedNewestJobFirstAndFiltered(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"), task("b"), command("c"))
	r.mixed(t, "y", task("fine"))
	r.mixed(t, "z", task("a"), command("b"))
	w := r.worker(t)
	for _, h := range []fsm.HeldAttempt{held(1, 0, 1, w), held(1, 2, 1, w), held(3, 0, 1, w), held(3, 1, 1, w)} {
		r.fails(t, h, fsm.NextDead, "exit 1")
	}
	r.fails(t, held(1, 1, 1, w), fsm.NextFailed, "refused")
	for _, c := range []struct {
		name string
		req  *dtaskv1.ListDeadLettersRequest
		want []string
	}{
		{"all", &dtaskv1.ListDeadLettersRequest{}, []string{"3/a", "3/b", "1/a", "1/c"}},
		{"pages of one", &dtaskv1.ListDeadLettersRequest{Limit: 1}, []string{"3/a", "3/b", "1/a", "1/c"}},
		{"job", &dtaskv1.ListDeadLettersRequest{Job: "1"}, []string{"1/a", "1/c"}},
		{"job in pages", &dtaskv1.ListDeadLettersRequest{Job: "1", Limit: 1}, []string{"1/a", "1/c"}},
		{"job without", &dtaskv1.ListDeadLettersRequest{Job: "2"}, nil},
		{"handler", &dtaskv1.ListDeadLettersRequest{Type: "noop"}, []string{"3/a", "1/a"}},
		{"command", &dtaskv1.ListDeadLettersRequest{Type: "command", Limit: 1}, []string{"3/b", "1/c"}},
		{"job and type", &dtaskv1.ListDeadLettersRequest{Job: "3", Type: "command"}, []string{"3/b"}},
		{"task", &dtaskv1.ListDeadLettersRequest{Job: "1", Task: "c"}, []string{"1/c"}},
		{"a task that is not dead", &dtaskv1.ListDeadLettersRequest{Job: "1", Task: "b"}, nil},
	} {
		if got, _ := r.deadLetters(t, c.req); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	for _, req := range []*dtaskv1.ListDeadLettersRequest{
		{Limit: maxLimit + 1}, {PageToken: "x"}, {PageToken: "3/"}, {PageToken: "03"}, {PageToken: "0/1"}, {Task: "a"}, {Consistency: 7},
	} {
		_, err := r.jobs.ListDeadLetters(t.Context(), req)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
	for _, req := range []*dtaskv1.ListDeadLettersRequest{{Job: "9"}, {Job: "x"}, {Job: "1", Task: "z"}} {
		_, err := r.jobs.ListDeadLetters(t.Context(), req)
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}

func TestADeadLetterHasThePayloadAndEveryAttempt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	a := task("a")
	a.Body.Payload = []byte("numbers")
	r.mixed(t, "x", a)
	w1, w2 := r.worker(t), r.worker(t)
	r.fails(t, held(1, 0, 1, w1), fsm.NextRetry, "exit 1")
	r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		return d.Due(fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1}, Attempt: 1})
	})
	r.fails(t, held(1, 0, 2, w2), fsm.NextDead, "exit 2")

	want := &dtaskv1.DeadLetter{
		Job: "1", JobName: "x", Task: "a", Type: "noop", Attempts: 2, Error: "exit 2", Owner: "ada", Payload: []byte("numbers"),
		History: []*dtaskv1.AttemptRecord{{Number: 1, Worker: "w1", Error: "exit 1"}, {Number: 2, Worker: "w2", Error: "exit 2"}},
	}
	times := cmp.Options{
		protocmp.Transform(),
		protocmp.IgnoreFields(&dtaskv1.DeadLetter{}, "died_at"), protocmp.IgnoreFields(&dtaskv1.AttemptRecord{}, "started_at", "ended_at"),
	}
	for _, history := range []bool{true, false} {
		resp, err := r.jobs.ListDeadLetters(t.Context(), &dtaskv1.ListDeadLettersRequest{WithHistory: history})
		if err != nil {
			t.Fatal(err)
		}
		if !history {
			want.Payload, want.History = nil, nil
		}
		if diff := cmp.Diff([]*dtaskv1.DeadLetter{want}, resp.GetDeadLetters(), times); diff != "" {
			t.Errorf("with history = %t: %s", history, diff)
		}
		if l := resp.GetDeadLetters()[0]; l.GetDiedAt() == 0 || resp.GetFreshness().GetAppliedIndex() != r.machine.Index() {
			t.Errorf("got time of death %d, freshness %v", l.GetDiedAt(), resp.GetFreshness())
		}
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithHistory: history})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.GetHistory(), pages[0].GetTasks()[0].GetHistory(), times); diff != "" {
			t.Errorf("a task with history = %t: %s", history, diff)
		}
	}
}

func TestAPageOfDeadLettersIsBoundedInBytesAndScannedTasks(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var tasks []*dtaskv1.TaskSpec
	for i := range 40 {
		one := task(fmt.Sprint("t", i))
		one.Body.Payload = make([]byte, 60<<10)
		tasks = append(tasks, one)
	}
	for from := 0; from < 40; from += 10 { // a message has at most 1 MiB
		r.mixed(t, fmt.Sprint("x", from), tasks[from:from+10]...)
	}
	w := r.worker(t)
	for i := range uint32(40) {
		r.fails(t, held(fsm.JobID(i/10+1), i%10, 1, w), fsm.NextDead, "exit 1")
	}
	ids, pages := r.deadLetters(t, &dtaskv1.ListDeadLettersRequest{WithHistory: true})
	if len(ids) != 40 || pages < 2 {
		t.Errorf("40 dead letters of 60 KiB: got %d in %d pages", len(ids), pages)
	}
	if ids, pages = r.deadLetters(t, &dtaskv1.ListDeadLettersRequest{}); len(ids) != 40 || pages != 1 {
		t.Errorf("without payloads: got %d in %d pages", len(ids), pages)
	}
	p := deadLetterPage{limit: 1, resp: &dtaskv1.ListDeadLettersResponse{}, tasks: maxScannedTasks}
	if !p.full() {
		t.Error("got an unbounded scan for a page")
	}
}

func TestPurgeRemovesDeadLettersAndIsIdempotent(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"), task("b"), task("c"), task("open"))
	w := r.worker(t)
	for i := range uint32(3) {
		r.fails(t, held(1, i, 1, w), fsm.NextDead, "exit 1")
	}
	for _, c := range []struct {
		tasks  []string
		purged uint32
	}{{[]string{"b", "a", "b"}, 2}, {[]string{"a", "b"}, 0}, {[]string{"a", "c"}, 1}, {nil, 0}} {
		resp, err := r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "1", Tasks: c.tasks, IdempotencyKey: rand.Text()})
		if err != nil || resp.GetPurged() != c.purged {
			t.Errorf("purging %v: got %v, %v; want %d", c.tasks, resp, err, c.purged)
		}
	}
	if r.leader.requests != 2 {
		t.Errorf("got %d proposals, want 2", r.leader.requests)
	}
	if ids, _ := r.deadLetters(t, &dtaskv1.ListDeadLettersRequest{}); ids != nil {
		t.Errorf("got %v, want none", ids)
	}
	purge := func(job string, tasks ...string) error {
		_, err := r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: job, Tasks: tasks, IdempotencyKey: rand.Text()})
		return err
	}
	wantError(t, purge("1", "open"), codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	wantError(t, purge("1", "z"), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	wantError(t, purge("9"), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	wantError(t, purge("1", make([]string, maxNamed+1)...), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestAllDeadLettersOfAJobArePurgedTogether(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"), task("b"))
	w := r.worker(t)
	r.fails(t, held(1, 0, 1, w), fsm.NextDead, "exit 1")
	r.fails(t, held(1, 1, 1, w), fsm.NextDead, "exit 1")
	resp, err := r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "1", IdempotencyKey: rand.Text()})
	if err != nil || resp.GetPurged() != 2 {
		t.Errorf("got %v, %v; want 2", resp, err)
	}
	job, err := r.get(t, "1", linearizable)
	if err != nil || job.GetTasksByState()["failed"] != 2 {
		t.Errorf("got %v, %v; want both failed", job, err)
	}
}

func TestARetryRerunsAJob(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", diamond()...)
	w := r.worker(t)
	r.complete(t, held(1, 0, 1, w), "")
	r.fails(t, held(1, 1, 1, w), fsm.NextDead, "exit 1")
	resp, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", IdempotencyKey: rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	job := resp.GetJob()
	if job.GetState() != dtaskv1.JobState_JOB_STATE_RUNNING || job.GetCompletedAt() != 0 || job.GetError() != "" || job.GetFreshness() == nil {
		t.Errorf("got %v", job)
	}
	if diff := cmp.Diff(map[string]uint32{"completed": 1, "pending": 2, "blocked": 1}, job.GetTasksByState()); diff != "" {
		t.Error(diff)
	}
}

func TestARejectedRetryIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", append(diamond(), task("apart"), task("open"), task("e", 3))...)
	r.submit(t, "done", task("a"))
	r.submit(t, "open", task("a"))
	w := r.worker(t)
	r.complete(t, held(2, 0, 1, w), "")
	r.complete(t, held(1, 0, 1, w), "")
	r.fails(t, held(1, 1, 1, w), fsm.NextDead, "exit 1")
	r.fails(t, held(1, 4, 1, w), fsm.NextFailed, "refused")
	for _, c := range []struct {
		job    string
		tasks  []string
		code   codes.Code
		reason dtaskv1.ErrorReason
		want   string
	}{
		{"9", nil, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job 9"},
		{"x", nil, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, `"x"`},
		{"1", []string{"b", "zz", "y"}, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, `task "zz" of job 1 not found`},
		{"1", make([]string, maxNamed+1), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid"},
		{"2", nil, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job 2 has completed"},
		{"3", nil, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job 3 is pending and has no failed tasks"},
		{"1", []string{"b", "a"}, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, `task "a" of job 1 has completed`},
		{"1", []string{"open"}, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "has not ended: it is pending"},
		{"1", []string{"d"}, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, `depends on "b", which is dead`},
	} {
		_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: c.job, Tasks: c.tasks, IdempotencyKey: rand.Text()})
		wantError(t, err, c.code, c.reason)
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("retrying %s %.40q: got %v, want it to contain %s", c.job, c.tasks, err, c.want)
		}
	}
	wantError(t, func() error {
		_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"e", "apart"}, IdempotencyKey: rand.Text()})
		if err != nil && !strings.Contains(err.Error(), `depends on "d", which was cancelled`) {
			t.Errorf("got %v", err)
		}
		return err
	}(), codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	resp, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"e", "b"}, IdempotencyKey: rand.Text()})
	if err != nil || resp.GetJob().GetTasksFailed() != 1 || resp.GetJob().GetTasksByState()["blocked"] != 2 {
		t.Errorf("got %v, %v; want b, d and e to run again, and apart to stay failed", resp.GetJob(), err)
	}
}

func TestATaskThatIsNotNeededIsNotRetriedAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	handler := task("handler", 0)
	handler.Conditions = []dtaskv1.Condition{dtaskv1.Condition_CONDITION_FAILED}
	r.mixed(t, "x", task("a"), handler, task("b"))
	w := r.worker(t)
	r.complete(t, held(1, 0, 1, w), "")
	r.fails(t, held(1, 2, 1, w), fsm.NextDead, "exit 1")
	_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"handler"}, IdempotencyKey: rand.Text()})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if want := `"handler" of job 1 is not needed: "a" has completed`; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to contain %s", err, want)
	}
}

func TestARepeatedRetryLeavesRunningTasksAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"), task("b"), task("early"))
	w := r.worker(t)
	r.complete(t, held(1, 2, 1, w), "")
	r.fails(t, held(1, 0, 1, w), fsm.NextDead, "exit 1")
	r.fails(t, held(1, 1, 1, w), fsm.NextDead, "exit 1")
	retry := func(tasks ...string) {
		t.Helper()
		if _, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: tasks, IdempotencyKey: rand.Text()}); err != nil {
			t.Errorf("retrying %v: %v", tasks, err)
		}
	}
	retry("a", "b")
	retry("a", "b") // both are pending
	retry()         // so nothing has failed
	r.complete(t, held(1, 0, 2, w), "")
	r.fails(t, held(1, 1, 2, w), fsm.NextDead, "exit 1")
	retry("a", "b") // one has completed since, the other is dead again
	if job, err := r.get(t, "1", linearizable); err != nil || job.GetTasksByState()["pending"] != 1 || job.GetTasksByState()["completed"] != 2 {
		t.Errorf("got %v, %v; want b pending again", job, err)
	}
	r.complete(t, held(1, 1, 3, w), "")
	retry("b")
	retry()
	_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"early"}, IdempotencyKey: rand.Text()})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
}

func TestAnUnknownOutcomeOfARetryOrAPurgeStaysUnknown(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"))
	r.fails(t, held(1, 0, 1, r.worker(t)), fsm.NextDead, "exit 1")
	r.leader.fail = sequencer.ErrOutcomeUnknown
	_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", IdempotencyKey: rand.Text()})
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	_, err = r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "1", IdempotencyKey: rand.Text()})
	wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address, f.state = "n2", "n2:1", "follower" })
	_, err = r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", IdempotencyKey: rand.Text()})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	if _, err = r.jobs.ListDeadLetters(t.Context(), &dtaskv1.ListDeadLettersRequest{Consistency: dtaskv1.Consistency_CONSISTENCY_STALE}); err != nil {
		t.Errorf("a stale listing at a follower: got %v", err)
	}
}

// A client whose call broke after the commit repeats it, even if the task has failed
// again since.
func TestARepeatedKeyReturnsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"), task("b"))
	w := r.worker(t)
	r.fails(t, held(1, 0, 1, w), fsm.NextDead, "exit 1")
	retry := &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"a"}, IdempotencyKey: "k", IfVersion: 1}
	first, err := r.jobs.Retry(t.Context(), retry)
	if err != nil || first.GetVersion() != 2 || first.GetExisted() {
		t.Fatalf("got %v, %v; want version 2", first, err)
	}
	r.fails(t, held(1, 0, 2, w), fsm.NextDead, "exit 1")
	again, err := r.jobs.Retry(t.Context(), retry)
	if err != nil || again.GetVersion() != 2 || !again.GetExisted() || again.GetJob().GetTasksByState()["dead"] != 1 {
		t.Errorf("repeated: got %v, %v; want version 2 and a dead task", again, err)
	}
	other := proto.CloneOf(retry)
	other.Tasks = []string{"b"}
	_, err = r.jobs.Retry(t.Context(), other)
	wantError(t, err, codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)

	purge := &dtaskv1.PurgeDeadLettersRequest{Job: "1", IdempotencyKey: "p", IfVersion: 2}
	for _, existed := range []bool{false, true} {
		got, err := r.jobs.PurgeDeadLetters(t.Context(), purge)
		if err != nil || got.GetPurged() != 1 || got.GetVersion() != 3 || got.GetExisted() != existed {
			t.Errorf("got %v, %v; want one purged in version 3, existed %t", got, err, existed)
		}
	}
}

func TestAChangeOfAnotherVersionIsRefusedWithTheCurrentOne(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.mixed(t, "x", task("a"))
	r.fails(t, held(1, 0, 1, r.worker(t)), fsm.NextDead, "exit 1")
	_, retry := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", IfVersion: 7, IdempotencyKey: "r"})
	_, purge := r.jobs.PurgeDeadLetters(t.Context(), &dtaskv1.PurgeDeadLettersRequest{Job: "1", IfVersion: 7, IdempotencyKey: "p"})
	for _, err := range []error{retry, purge} {
		wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
		if !strings.Contains(err.Error(), "job 1 has version 1") {
			t.Errorf("got %v, want the current version in it", err)
		}
	}
}
