package fsm

import "testing"

func TestADrainOutlivesTheWorkersProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(worker(1)).do(&DrainWorker{ID: 1, Until: 100, Reason: "new disk"})
	w.submit(plan(nil))
	give := &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 1, 1))}}
	if r := w.try(give); r != WrongState {
		t.Errorf("assigning to a draining worker: got %v", r)
	}
	again := worker(1)
	again.Incarnation = "i2"
	w.do(&MarkWorkerDown{ID: 1}).do(again)
	if x := w.s.Worker(1); x.DrainUntil != 100 || x.DrainReason != "new disk" || x.Incarnation != "i2" {
		t.Fatalf("after a restart: got %+v", x)
	}
	sameState(t, "restored", restored(t, snapshotOf(t, w.s)), w.s)
	w.do(&UndrainWorker{ID: 1}).do(give)
	if r := w.try(&UndrainWorker{ID: 1}); r != AlreadyEnded {
		t.Errorf("undraining twice: got %v", r)
	}
	w.do(complete(hold(1, 0, 1, 1)), &DrainWorker{ID: 1, Until: 100}, &MarkWorkerDown{ID: 1}, &ForgetWorkers{IDs: []WorkerID{1}})
	if r := w.try(&DrainWorker{ID: 1, Until: 100}); r != WorkerNotFound {
		t.Errorf("draining a forgotten worker: got %v", r)
	}
	fresh := worker(2)
	fresh.Name = "w1"
	w.do(fresh)
	if w.s.WorkerByName("w1").Drains() {
		t.Error("a new worker with an old name drains")
	}
}
