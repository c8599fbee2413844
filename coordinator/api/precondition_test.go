package api

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// keyed is a request that changes job 1 and carries an idempotency key.
type keyed struct {
	task, key string
	ifVersion uint64
}

// outcome is what the response to a keyed request reports.
type outcome struct {
	version, purged uint32
	existed         bool
	job             string
}

// keyedMethods has an entry for each method that changes a job once per key. Its first
// request takes effect on keyedJob.
var keyedMethods = map[string]struct {
	first keyed
	call  func(ctx context.Context, r *replica, k keyed) (outcome, error)
}{
	dtaskv1.JobService_Retry_FullMethodName: {keyed{"part", "k", 1}, func(ctx context.Context, r *replica, k keyed) (outcome, error) {
		got, err := r.jobs.Retry(ctx, &dtaskv1.RetryRequest{Job: "1", Tasks: []string{k.task}, IdempotencyKey: k.key, IfVersion: k.ifVersion})
		return outcome{version: got.GetVersion(), existed: got.GetExisted(), job: got.GetJob().GetId()}, err
	}},
	dtaskv1.JobService_PurgeDeadLetters_FullMethodName: {keyed{"part", "k", 1}, func(ctx context.Context, r *replica, k keyed) (outcome, error) {
		got, err := r.jobs.PurgeDeadLetters(ctx, &dtaskv1.PurgeDeadLettersRequest{Job: "1", Tasks: []string{k.task}, IdempotencyKey: k.key, IfVersion: k.ifVersion})
		return outcome{version: got.GetVersion(), purged: got.GetPurged(), existed: got.GetExisted(), job: "1"}, err
	}},
	dtaskv1.JobService_Update_FullMethodName: {keyed{"later", "k", 1}, func(ctx context.Context, r *replica, k keyed) (outcome, error) {
		got, err := r.jobs.Update(ctx, &dtaskv1.UpdateRequest{
			Job: "1", Task: k.task, Payload: []byte("new"), IdempotencyKey: k.key, IfVersion: k.ifVersion,
		})
		return outcome{version: got.GetVersion(), existed: got.GetExisted(), job: got.GetJob().GetId()}, err
	}},
}

// noHistory is archiving without a history: archived jobs are gone.
func noHistory(*testing.T) []func(*Config) { return nil }

// eachKeyedMethod runs a test per method on keyedJob after the first request: its client
// has lost the answer. repeat repeats the request and requires the first outcome.
func eachKeyedMethod(
	t *testing.T, change func(*testing.T) []func(*Config),
	test func(t *testing.T, r *replica, call func(keyed) error, first keyed, repeat func()),
) {
	t.Helper()
	for name, m := range methods {
		if m.repeat != repeatKeyed || name == dtaskv1.JobService_Submit_FullMethodName || strings.HasPrefix(name, "/dtask.v1.ScheduleService/") {
			continue
		}
		method, ok := keyedMethods[name]
		if !ok {
			t.Errorf("%s: missing in keyedMethods", name)
			continue
		}
		t.Run(name[strings.LastIndex(name, "/")+1:], func(t *testing.T) {
			t.Parallel()
			r := setup(t, change(t)...)
			r.keyedJob(t)
			want, err := method.call(t.Context(), r, method.first)
			if err != nil || want.version != 2 || want.existed || want.job != "1" {
				t.Fatalf("first: got %+v, %v; want version 2", want, err)
			}
			want.existed = true
			proposals := r.leader.requests
			repeat := func() {
				t.Helper()
				if got, err := method.call(t.Context(), r, method.first); err != nil || got != want {
					t.Errorf("repeated: got %+v, %v; want %+v", got, err, want)
				}
				if r.leader.requests != proposals {
					t.Errorf("repeated: got %d proposals, want none", r.leader.requests-proposals)
				}
			}
			call := func(k keyed) error {
				_, err := method.call(t.Context(), r, k)
				return err
			}
			test(t, r, call, method.first, repeat)
		})
	}
}

// keyedJob stores job 1 and a worker: array part has two dead tasks, and task later is
// pending.
func (r *replica) keyedJob(t *testing.T) {
	t.Helper()
	h := header("x")
	h.OnFailure = dtaskv1.OnFailure_ON_FAILURE_CONTINUE
	req := request("x", h, ranged("part", 5), task("later"))
	req.Total = 3
	if _, err := r.send(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	r.fails(t, held(1, 0, 1, w), fsm.NextDead, "exit 1")
	r.fails(t, held(1, 1, 1, w), fsm.NextDead, "exit 1")
}

// finishKeyedJob completes all tasks of keyedJob.
func (r *replica) finishKeyedJob(t *testing.T) {
	t.Helper()
	st, _ := r.machine.Fork()
	if job, _ := st.Job(1); job.Failed() > 0 {
		r.leader.op(t, &fsm.Revive{Job: 1})
	}
	r.complete(t, held(1, 0, 2, 1), "")
	r.complete(t, held(1, 1, 2, 1), "")
	r.complete(t, held(1, 2, 1, 1), "")
}

// archiving changes a configuration: ended jobs move to a history.
func archiving(t *testing.T) []func(*Config) {
	t.Helper()
	_, change := withHistory(t, false, Summarize)
	return []func(*Config){change}
}

func wantConflict(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	wantError(t, err, code, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want it to contain %q", err, text)
	}
}

// No task of the array has failed any longer, the task of the update has started, and
// the job has another version and has completed: none of it may hide the outcome.
func TestARepeatedKeyReturnsTheFirstOutcomeInAnyState(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, noHistory, func(t *testing.T, r *replica, call func(keyed) error, first keyed, repeat func()) {
		t.Helper()
		repeat()
		r.finishKeyedJob(t)
		repeat()
		first.key = "other"
		wantConflict(t, call(first), codes.FailedPrecondition, "and the request expects version 1")
	})
}

func TestARepeatedKeyOfAnArchivedJobReturnsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, archiving, func(t *testing.T, r *replica, call func(keyed) error, first keyed, repeat func()) {
		t.Helper()
		r.finishKeyedJob(t)
		r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}})
		repeat()
		first.key = "other"
		wantConflict(t, call(first), codes.FailedPrecondition, "archived")
	})
}

// A key may outlive its job.
func TestARepeatedKeyOfAnExpiredJobReturnsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, noHistory, func(t *testing.T, r *replica, call func(keyed) error, first keyed, repeat func()) {
		t.Helper()
		r.finishKeyedJob(t)
		r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}}) // without a history
		repeat()
		first.key = "other"
		wantError(t, call(first), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	})
}

// While history is being fetched, an archived job may be in the missing part.
func TestARepeatedKeyOfAMissingJobReturnsTheFirstOutcome(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, archiving, func(t *testing.T, r *replica, call func(keyed) error, first keyed, repeat func()) {
		t.Helper()
		r.finishKeyedJob(t)
		r.cfg.History.Restored(r.machine.Index() + 10) // jobs that left before are missing
		r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}})
		repeat()
		first.key = "other"
		wantError(t, call(first), codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	})
}

// The key of another request is a conflict before anything else about the request is
// resolved.
func TestAKeyOfAnotherRequestIsAConflictInAnyState(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, archiving, func(t *testing.T, r *replica, call func(keyed) error, first keyed, _ func()) {
		t.Helper()
		refuse := func() {
			t.Helper()
			for _, k := range []keyed{{"nosuch", "k", 1}, {"part[1]", "k", 1}, {first.task, "k", 2}, {first.task, "k", 0}, {first.task, "x", 1}} {
				wantConflict(t, call(k), codes.AlreadyExists, "the idempotency key was used for another request")
			}
		}
		refuse()
		r.finishKeyedJob(t)
		refuse()
		r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}})
		refuse()
	})
}

// The version is compared before names are resolved: which tasks of an array have failed
// depends on it.
func TestAnotherVersionIsReportedBeforeMissingTasks(t *testing.T) {
	t.Parallel()
	eachKeyedMethod(t, noHistory, func(t *testing.T, r *replica, call func(keyed) error, _ keyed, _ func()) {
		t.Helper()
		r.finishKeyedJob(t)
		wantConflict(t, call(keyed{"part", "other", 1}), codes.FailedPrecondition, "and the request expects version 1")
	})
}

// Some tasks of the array have failed again, so that its name means fewer tasks than at
// first.
func TestARepeatedRetryOfAnArrayLeavesLaterFailuresAlone(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.keyedJob(t)
	retry := &dtaskv1.RetryRequest{Job: "1", Tasks: []string{"part"}, IdempotencyKey: "k"}
	if _, err := r.jobs.Retry(t.Context(), retry); err != nil {
		t.Fatal(err)
	}
	r.fails(t, held(1, 1, 2, 1), fsm.NextDead, "exit 1")
	again, err := r.jobs.Retry(t.Context(), retry)
	if err != nil || again.GetVersion() != 2 || !again.GetExisted() || again.GetJob().GetTasksByState()["dead"] != 1 {
		t.Errorf("repeated: got %v, %v; want version 2 and a dead task", again, err)
	}
}
