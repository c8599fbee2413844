package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAnUpdateIsShownAndKeepsTheRestOfTheTask(t *testing.T) {
	t.Parallel()
	r := setup(t)
	c := command("a")
	r.mixed(t, "j", c, task("b", 0))
	got, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{
		Job: "1", Task: "a", Priority: dtaskv1.Priority_PRIORITY_URGENT, Payload: []byte("new"), DelayMs: proto.Int64(5000), IdempotencyKey: "u",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetVersion() != 2 || got.GetJob().GetVersion() != 2 || got.GetJob().GetTasksByState()["scheduled"] != 1 {
		t.Errorf("got %v", got)
	}
	st, _ := r.machine.Fork()
	ref := fsm.TaskRef{Job: 1}
	body := new(dtaskv1.TaskBody)
	if err := proto.Unmarshal(st.Body(ref), body); err != nil {
		t.Fatal(err)
	}
	if string(body.GetPayload()) != "new" || strings.Join(body.GetCommand(), " ") != strings.Join(c.GetBody().GetCommand(), " ") {
		t.Errorf("got body %v", body)
	}
	got, err = r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Priority: dtaskv1.Priority_PRIORITY_LOW, IfVersion: 2, IdempotencyKey: "v"})
	if err != nil || got.GetJob().GetPriority() != dtaskv1.Priority_PRIORITY_LOW {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Priority: dtaskv1.Priority_PRIORITY_LOW, IfVersion: 2, IdempotencyKey: "w"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if !strings.Contains(err.Error(), "has version 3") || !strings.Contains(err.Error(), "expects version 2") {
		t.Errorf("got conflict %v, want it to name both versions", err)
	}
}

func TestAnUpdateOfAStartedTaskNamesItsState(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "j", task("a"))
	w := r.worker(t)
	h := held(1, 0, 1, w)
	r.assign(t, h)
	update := func(task, key string) error {
		_, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Task: task, MaxRetries: proto.Uint32(1), IdempotencyKey: key})
		return err
	}
	for want, f := range map[string]func() error{
		"is assigned in attempt 1":        func() error { return update("a", "k1") },
		"every task of job 1 has started": func() error { return update("", "k2") },
	} {
		err := f()
		wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %q", err, want)
		}
	}
	wantError(t, update("nosuch", "k3"), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	r.leader.op(t, &fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: h}}})
	wantError(t, update("", "k4"), codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
}

func TestAnInvalidUpdateIsRejected(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "j", task("a"))
	for _, bad := range []*dtaskv1.UpdateRequest{
		{Job: "1", Priority: 2},
		{Job: "1", IdempotencyKey: "k"},
		{Job: "1", IdempotencyKey: "k", Priority: 9},
		{Job: "1", IdempotencyKey: "k", TimeoutMs: -1},
		{Job: "1", IdempotencyKey: "k", MaxRetries: proto.Uint32(2_000_000)},
		{Job: "1", IdempotencyKey: "k", Payload: []byte("x")},
		{Job: "1", Task: "a", IdempotencyKey: "k", Payload: make([]byte, 70<<10)},
		{Job: "1", IdempotencyKey: "k", DelayMs: proto.Int64(-1)},
		{Job: "1", IdempotencyKey: "k", DelayMs: proto.Int64(1), NotBefore: proto.Int64(1)},
	} {
		_, err := r.jobs.Update(t.Context(), bad)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

// The limits of payloads may differ between coordinators while their configuration
// changes.
func TestARepeatedUpdateExceedsALowerLimit(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "j", task("a"))
	update := &dtaskv1.UpdateRequest{Job: "1", Task: "a", Payload: make([]byte, 1000), IdempotencyKey: "k"}
	if _, err := r.jobs.Update(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	lower := setup(t, func(c *Config) { c.Machine, c.MaxPayload = r.machine, 100 })
	if again, err := lower.jobs.Update(t.Context(), update); err != nil || again.GetVersion() != 2 || !again.GetExisted() {
		t.Errorf("repeated: got %v, %v; want version 2", again, err)
	}
	update.IdempotencyKey = "other"
	_, err := lower.jobs.Update(t.Context(), update)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}
