package scheduler_test

import (
	"strconv"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func TestTasksThatNoWorkerCouldRunAreCounted(t *testing.T) {
	t.Parallel()
	s := fleet(2, 1)
	gpu := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1}}})
	s.PushRun(task(0), 5, 0, scheduler.Normal) // two of them get a slot
	s.PushRun(task(10), 3, gpu, scheduler.High)
	s.Push(task(20), gpu, scheduler.Low, 0)
	expect := func(what string, want int, cancelled ...int) {
		t.Helper()
		valid := func(ref scheduler.TaskRef) bool {
			for _, c := range cancelled {
				if ref == task(c) {
					return false
				}
			}
			return true
		}
		for {
			if _, ok := s.Next(valid); !ok {
				break
			}
		}
		if got := s.Unplaceable(valid); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	expect("without a worker that has the resource", 4)
	expect("after a task was cancelled", 3, 10)
	s.AddWorker(3, scheduler.Capacity{Slots: 1, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1}}})
	expect("with a worker that has it, and is busy", 0, 10)
	s.SetAccepting(3, false)
	expect("while that one drains", 2, 10)
	s.RemoveWorker(3)
	expect("after it has left", 2, 10)
	expect("after all of them were cancelled", 0, 10, 11, 12, 20)
	s.RemoveWorker(1)
	s.RemoveWorker(2)
	expect("without any worker", 3)
}

// BenchmarkUnplaceable counts while a task is pinned to each of 5,000 workers, as the leader does
// four times per second.
func BenchmarkUnplaceable(b *testing.B) {
	s := scheduler.New(1)
	for i := range 5000 {
		pin := []scheduler.Label{{Name: "worker", Value: strconv.Itoa(i)}}
		s.AddWorker(scheduler.WorkerID(i+1), scheduler.Capacity{Slots: 1, Labels: pin}) //nolint:gosec // small
		s.Push(task(i), s.Class(scheduler.Demand{Labels: pin}), scheduler.Normal, 0)
	}
	for b.Loop() {
		if n := s.Unplaceable(nil); n != 0 {
			b.Fatalf("got %d, want 0", n)
		}
	}
}
