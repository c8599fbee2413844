package api

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// withQueues returns a replica at the level of queues that has the queue etl.
func withQueues(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	r := setup(t, change...)
	r.leader.op(t, &fsm.SetLevel{Level: 3})
	r.mustSetQueue(t, "etl", &dtaskv1.QueueSettings{Weight: 3, MaxRunning: 200, Max: map[string]int64{"gpu": 4000}, Require: map[string]string{"pool": "etl"}})
	return r
}

func (r *replica) mustSetQueue(t *testing.T, name string, s *dtaskv1.QueueSettings) *dtaskv1.Queue {
	t.Helper()
	got, err := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: name, Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetQueue()
}

func TestQueuesAreListedWithTheirLoads(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	got, err := r.queues.ListQueues(t.Context(), &dtaskv1.ListQueuesRequest{})
	if err != nil || len(got.GetQueues()) != 2 {
		t.Fatalf("got %v, %v; want default and etl", got, err)
	}
	unset, etl := got.GetQueues()[0], got.GetQueues()[1]
	if unset.GetName() != "default" || unset.GetVersion() != 0 || unset.GetSettings().GetWeight() != 1 {
		t.Errorf("got %v", unset)
	}
	s := etl.GetSettings()
	if etl.GetVersion() != 1 || s.GetWeight() != 3 || s.GetMaxRunning() != 200 || s.GetMax()["gpu"] != 4000 || s.GetRequire()["pool"] != "etl" ||
		etl.GetWaiting() != 7 || etl.GetRunning() != 3 || etl.GetWaitP99Us() != 9000 {
		t.Errorf("got %v", etl)
	}
	one, err := r.queues.ListQueues(t.Context(), &dtaskv1.ListQueuesRequest{Name: "etl"})
	if err != nil || len(one.GetQueues()) != 1 {
		t.Errorf("got %v, %v", one, err)
	}
	_, err = r.queues.ListQueues(t.Context(), &dtaskv1.ListQueuesRequest{Name: "elt"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	if !strings.Contains(err.Error(), `did you mean "etl"?`) {
		t.Errorf("got %v", err)
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	for want, s := range map[string]*dtaskv1.QueueSettings{
		"weight: 10001 is out of range":     {Weight: 10_001},
		"max.gpu: a quota of 0 or less":     {Max: map[string]int64{"gpu": 0}},
		"max.mem: a quota of 0 or less":     {Max: map[string]int64{"mem": -1}},
		"submit_rate: missing":              {SubmitBurst: 3},
		"submit_period_ms: missing":         {SubmitRate: 3},
		"submit_rate: 10000001 is out":      {SubmitRate: 10_000_001, SubmitPeriodMs: 1000},
		"submit_burst: 2000000 is out":      {SubmitRate: 1, SubmitPeriodMs: 1000, SubmitBurst: 2_000_000},
		"require.a b: invalid name \"a b\"": {Require: map[string]string{"a b": "x"}},
	} {
		_, err := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "etl", Settings: s})
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if faults := strings.Join(detailOf(err).GetFaults(), "\n"); !strings.Contains(faults, want) {
			t.Errorf("got %q, want %q", faults, want)
		}
	}
	_, err := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "a b"})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	_, err = r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "etl", IfVersion: 7})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if !strings.Contains(err.Error(), "has version 1, and the request expects version 7") {
		t.Errorf("got %v", err)
	}
}

func TestAJobInAnUnknownQueueIsInvalid(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	submit := func(key, queue string) error {
		h := header("x")
		h.Queue = queue
		_, err := r.send(t.Context(), request(key, h, task("a")))
		return err
	}
	for _, queue := range []string{"", "default", "etl"} {
		if err := submit("q"+queue, queue); err != nil {
			t.Errorf("queue %q: %v", queue, err)
		}
	}
	err := submit("unknown", "elt")
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	if faults := strings.Join(detailOf(err).GetFaults(), "\n"); faults != `job.queue: unknown queue "elt"; did you mean "etl"?` {
		t.Errorf("got %q", faults)
	}
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "3"})
	if err != nil || job.GetQueue() != "etl" {
		t.Errorf("got %v, %v", job, err)
	}
	_, err = r.queues.DeleteQueue(t.Context(), &dtaskv1.DeleteQueueRequest{Name: "etl"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
}

func TestBelowTheirLevelQueuesAreRefused(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Queue = "default"
	_, err := r.send(t.Context(), request("k", h, task("a")))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "queues require 3") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsOfAQueueThatAreTooLongAreInvalid(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	set := func(value int) error {
		s := &dtaskv1.QueueSettings{Require: map[string]string{}, Max: map[string]int64{}}
		for i := range 64 {
			name := fmt.Sprintf("%063d", i)
			s.Require[name], s.Max[name] = strings.Repeat("v", value), 1<<62
		}
		_, err := r.queues.SetQueue(t.Context(), &dtaskv1.SetQueueRequest{Name: "long", Settings: s})
		return err
	}
	wantError(t, set(255), codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	if err := set(98); err != nil {
		t.Error(err)
	}
}

func TestAJobIsNotMovedToAQueueWithAnInvalidName(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	r.submit(t, "j", task("a"))
	_, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Queue: "e t l", IdempotencyKey: "u"})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestAnUpdateMovesAJob(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	r.submit(t, "j", task("a"))
	got, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Queue: "etl", IfVersion: 1, IdempotencyKey: "u"})
	if err != nil || got.GetVersion() != 2 || got.GetJob().GetQueue() != "etl" {
		t.Errorf("got %v, %v", got, err)
	}
	for queue, want := range map[string]string{"ml": `queue "ml" not found`, "elt": `queue "elt" not found; did you mean "etl"?`} {
		_, err = r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Queue: queue, IdempotencyKey: queue})
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		if status.Convert(err).Message() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err = r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Queue: "default", IfVersion: 1, IdempotencyKey: "w"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	for _, both := range []*dtaskv1.UpdateRequest{
		{Job: "1", Queue: "default", Priority: 1, IdempotencyKey: "x"}, {Job: "1", Task: "a", Queue: "default", IdempotencyKey: "y"},
	} {
		_, err = r.jobs.Update(t.Context(), both)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

func TestAQueueIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	r := withQueues(t)
	for i, already := range []bool{false, true} {
		got, err := r.queues.PauseQueue(t.Context(), &dtaskv1.PauseQueueRequest{Name: "etl", Reason: "new disk"})
		if err != nil || got.GetAlready() != already || got.GetQueue().GetPauseReason() != "new disk" || got.GetQueue().GetPausedAt() == 0 {
			t.Errorf("pause %d: got %v, %v", i, got, err)
		}
	}
	for i, already := range []bool{false, true} {
		got, err := r.queues.ResumeQueue(t.Context(), &dtaskv1.ResumeQueueRequest{Name: "etl"})
		if err != nil || got.GetAlready() != already || got.GetQueue().GetPausedAt() != 0 {
			t.Errorf("resume %d: got %v, %v", i, got, err)
		}
	}
	_, err := r.queues.PauseQueue(t.Context(), &dtaskv1.PauseQueueRequest{Name: "ml"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	if _, err := r.queues.DeleteQueue(t.Context(), &dtaskv1.DeleteQueueRequest{Name: "etl", IfVersion: 3}); err != nil {
		t.Error(err)
	}
}
