package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func TestAWorkerGetsNoTaskOfANamespaceThatItDoesNotServe(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 100, Namespaces: []string{"ml", "etl"}})
	s.AddWorker(2, scheduler.Capacity{Slots: 1, Namespaces: []string{""}})
	etl, plain, web := s.Class(scheduler.Demand{Namespace: "etl"}), s.Class(scheduler.Demand{}), s.Class(scheduler.Demand{Namespace: "web"})
	if etl == plain || etl == web || plain == web {
		t.Fatalf("classes %d, %d and %d: want three", etl, plain, web)
	}
	s.Push(task(1), web, scheduler.Urgent, 0)
	s.Push(task(2), plain, scheduler.Normal, 0)
	s.Push(task(3), plain, scheduler.Normal, 0)
	s.Push(task(4), etl, scheduler.Normal, 0)
	if a := mustNext(t, s); a.Task != task(2) || a.Worker != 2 {
		t.Errorf("got %+v, want task 2 on worker 2", a)
	}
	if a := mustNext(t, s); a.Task != task(4) || a.Worker != 1 {
		t.Errorf("got %+v, want task 4 on worker 1", a)
	}
	if a, ok := s.Next(nil); ok {
		t.Errorf("got %+v, want nothing", a)
	}
	for _, fit := range s.View(scheduler.TaskRef{}, web, scheduler.Normal, 0, nil).Workers() {
		if got := fit.Obstacles[len(fit.Obstacles)-1].String(); got != `does not serve namespace "web"` {
			t.Errorf("worker %d: got %q", fit.Worker, got)
		}
	}
	if n := s.Unplaceable(func(scheduler.TaskRef) bool { return true }); n != 1 {
		t.Errorf("got %d tasks that no worker could run, want 1", n)
	}
	s.AddWorker(3, scheduler.Capacity{Slots: 1}) // it has no identity: it serves all
	if a := mustNext(t, s); a.Task != task(1) || a.Worker != 3 {
		t.Errorf("got %+v, want task 1 on worker 3", a)
	}
}
