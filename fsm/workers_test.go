package fsm

import (
	"fmt"
	"testing"
)

// A worker that is down is forgotten after its last attempt has ended or been
// reassigned, in whatever way: the count of its attempts is correct on every way
// out of "assigned", in a fork, and after a restore.
func TestAWorkerIsForgottenAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1), worker(2), worker(3))
	w.submit(&jobPlan{onFailure: continueOnFailure, tasks: plan(nil, nil, nil, nil, nil).tasks})
	var held []HeldAttempt
	for i := range uint32(5) {
		held = append(held, w.assign(i, 2))
	}
	w.do(&MarkWorkerDown{ID: 2})
	ends := []Op{
		complete(held[0]), failed(held[1], NextRetry), failed(held[2], NextDead),
		&RequeueLost{Items: held[3:4]}, &CancelTask{Task: held[4].TaskRef},
	}
	for at, end := range ends {
		refused(t, w, fmt.Sprintf("with %d attempts left", len(ends)-at), WrongState, &ForgetWorkers{IDs: []WorkerID{2}})
		if got := w.s.LiveAttempts(2); got != len(ends)-at {
			t.Errorf("got %d live attempts of worker 2, want %d", got, len(ends)-at)
		}
		w.s = restored(t, snapshotOf(t, w.s.Fork()))
		w.do(end)
	}
	before := w.s.Fork()
	refused(t, w, "forgetting a worker twice", Malformed, &ForgetWorkers{IDs: []WorkerID{2, 2}})
	refused(t, w, "with an unknown worker", WorkerNotFound, &ForgetWorkers{IDs: []WorkerID{2, 9}})
	refused(t, w, "with a worker that is up", WrongState, &ForgetWorkers{IDs: []WorkerID{2, 3}})
	w.do(&ForgetWorkers{IDs: []WorkerID{2}})
	if w.s.Worker(2) != nil || w.s.Worker(3) == nil || before.Worker(2) == nil {
		t.Error("worker 2 or 3 is wrong after forgetting 2")
	}
	w.assign(3, 3)
	w.do(&MarkWorkerDown{ID: 3})
	refused(t, w, "with the worker that moved up in the list", WrongState, &ForgetWorkers{IDs: []WorkerID{3}})
}
