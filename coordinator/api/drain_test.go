package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAWorkerIsDrainedAndUndrained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w1, w2 := r.worker(t), r.worker(t)
	r.leader.statuses = map[fsm.WorkerID]sequencer.WorkerStatus{w1: {Attached: true, Held: 1}, w2: {Attached: true}}
	for _, c := range []struct{ name, state string }{{"w1", "draining"}, {"w2", "drained"}} {
		got, err := r.admin.DrainWorker(t.Context(), &dtaskv1.DrainWorkerRequest{Name: c.name, DeadlineMs: 600_000, Reason: "new disk"})
		if err != nil {
			t.Fatal(err)
		}
		if w := got.GetWorker(); w.GetState() != c.state || w.GetDrainUntil() != 1_600_000 || w.GetDrainReason() != "new disk" {
			t.Errorf("%s: %v", c.name, w)
		}
		list, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list.GetWorkers() {
			if w.GetName() == c.name && w.GetState() != c.state {
				t.Errorf("listed %s: %v", c.name, w)
			}
		}
	}
	for _, already := range []bool{false, true} {
		got, err := r.admin.UndrainWorker(t.Context(), &dtaskv1.UndrainWorkerRequest{Name: "w1"})
		if err != nil || got.GetAlreadyUndrained() != already || got.GetWorker().GetState() != "up" || got.GetWorker().GetDrainUntil() != 0 {
			t.Errorf("undrain: %v, %v", got, err)
		}
	}
	r.leader.op(t, &fsm.MarkWorkerDown{ID: w2, Reason: "left"})
	list, err := r.admin.ListWorkers(t.Context(), &dtaskv1.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if w := list.GetWorkers()[1]; w.GetState() != "down" || w.GetDrainUntil() == 0 {
		t.Errorf("a drained worker that is down: got %v", w)
	}
}

func TestAnInvalidDrainIsRejected(t *testing.T) {
	t.Parallel()
	r := setup(t)
	_ = r.worker(t)
	for what, q := range map[string]*dtaskv1.DrainWorkerRequest{
		"negative": {Name: "w1", DeadlineMs: -1},
		"far":      {Name: "w1", DeadlineMs: 1 << 50},
		"reason":   {Name: "w1", Reason: strings.Repeat("x", 257)},
	} {
		_, err := r.admin.DrainWorker(t.Context(), q)
		if d := wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID); len(d.GetFaults()) != 1 {
			t.Errorf("%s: %v", what, d)
		}
	}
	_, err := r.admin.DrainWorker(t.Context(), &dtaskv1.DrainWorkerRequest{Name: "nobody"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	_, err = r.admin.UndrainWorker(t.Context(), &dtaskv1.UndrainWorkerRequest{Name: "nobody"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)

	r.leading(false)
	r.raft.set(func(f *fakeRaft) { f.id, f.address = "n2", "n2:1" })
	_, err = r.admin.DrainWorker(t.Context(), &dtaskv1.DrainWorkerRequest{Name: "w1"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	_, err = r.admin.UndrainWorker(t.Context(), &dtaskv1.UndrainWorkerRequest{Name: "w1"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
}

func TestATaskShowsWhenItsCheckpointWasSaved(t *testing.T) {
	t.Parallel()
	r := setup(t)
	w := r.worker(t)
	id := r.submit(t, "one", task("a"))
	h := held(id, 0, 1, w)
	r.assign(t, h)
	r.leader.op(t, &fsm.Checkpoint{HeldAttempt: h, Saved: fsm.SavedCheckpoint{Number: 1, Format: fsm.DataCheckpoint}})
	stream, err := r.jobs.ListTasks(t.Context(), &dtaskv1.ListTasksRequest{Job: "1"})
	if err != nil {
		t.Fatal(err)
	}
	page, err := stream.Recv()
	if err != nil || page.GetTasks()[0].GetCheckpointAt() != r.leader.nowMS {
		t.Errorf("got %v, %v", page, err)
	}
}
