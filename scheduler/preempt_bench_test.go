package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// busyPreemptible is a fleet of 1,000 workers with 10 CPUs each, which are busy with low and normal
// tasks of 10 classes that give their places to urgent ones.
func busyPreemptible() (s *scheduler.Scheduler, classes []scheduler.ClassID) {
	s = scheduler.New(1)
	for n := range 10 {
		classes = append(classes, s.Class(scheduler.Demand{Queue: "ml", Resources: []scheduler.Quantity{{Name: "cpu", Amount: int64(500 + 100*n)}}, Preemptible: true}))
	}
	for id := range scheduler.WorkerID(1000) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 11, Resources: cpus(10)})
		for n, c := range classes {
			p := scheduler.Low + scheduler.Priority((n+int(id))%2) //nolint:gosec // small
			s.Occupy(id+1, c, p)
			s.Yields(id+1, c, p, 1)
		}
	}
	return s, classes
}

// BenchmarkPreempt is one choice among 1,000 workers and 10,000 attempts. The leader makes one when
// nothing can start while an urgent task waits that has waited for a second.
func BenchmarkPreempt(b *testing.B) {
	for name, d := range map[string]scheduler.Demand{
		"one CPU":        {Queue: "ml", Resources: cpus(1)},
		"4 CPUs":         {Queue: "ml", Resources: cpus(4)},
		"more than ends": {Queue: "ml", Resources: cpus(10)},
	} {
		b.Run(name, func(b *testing.B) {
			s, _ := busyPreemptible()
			if name == "more than ends" { // one attempt of each worker does not end: no place is enough
				firm := s.Class(scheduler.Demand{Queue: "other", Resources: cpus(1)})
				for id := range scheduler.WorkerID(1000) {
					s.Occupy(id+1, firm, scheduler.Low)
				}
			}
			s.Push(task(0), s.Class(d), scheduler.Urgent, 0)
			for now := range int64(20) {
				s.Advance(100 * now)
			}
			if a, ok := s.Next(nil); ok {
				b.Fatalf("%+v starts", a)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.PreemptOne(nil, func(scheduler.WorkerID) bool { return false }); ok != (name != "more than ends") {
					b.Fatalf("found: %v", ok)
				}
				b.StopTimer()
				s.SetQueue("ml", scheduler.Queue{Paused: true}) // releases the worker
				s.SetQueue("ml", scheduler.Queue{})
				b.StartTimer()
			}
		})
	}
}

// BenchmarkNextPreemptible is BenchmarkNext/plain in a cluster all of whose tasks are preemptible,
// beside one where none is. No urgent task waits.
func BenchmarkNextPreemptible(b *testing.B) {
	for name, preemptible := range map[string]bool{"plain": false, "preemptible": true} {
		b.Run(name, func(b *testing.B) {
			s := newSaturated(scheduler.Demand{Preemptible: preemptible})
			if preemptible {
				for _, a := range s.running {
					s.s.Yields(a.Worker, a.Class, a.Priority, 1)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if preemptible {
					a := &s.running[s.at%len(s.running)]
					s.s.Yields(a.Worker, a.Class, a.Priority, -1)
				}
				at := s.at % len(s.running)
				if !s.step() {
					b.Fatal("nothing starts")
				}
				if a := &s.running[at]; preemptible {
					s.s.Yields(a.Worker, a.Class, a.Priority, 1)
				}
				if s.s.MayPreempt() {
					b.Fatal("an urgent task waits")
				}
			}
		})
	}
}
