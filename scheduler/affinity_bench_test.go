package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// newSaturated has 1,000 workers that are saturated with tasks, the same number of each
// class. Each step ends the oldest attempt, pushes a task of its class and assigns one.
func newSaturated(demands ...scheduler.Demand) *steadyKeys {
	s := &steadyKeys{s: scheduler.New(1)}
	for id := range scheduler.WorkerID(1_000) {
		s.s.AddWorker(id+1, scheduler.Capacity{Slots: 8})
	}
	for _, d := range demands {
		s.s.PushRun(scheduler.TaskRef{Job: 1}, uint32(200_000/len(demands)), s.s.Class(d), scheduler.Normal) //nolint:gosec // small
	}
	for a, ok := s.s.Next(nil); ok; a, ok = s.s.Next(nil) {
		s.running = append(s.running, a)
	}
	return s
}

type steadyKeys struct {
	s       *scheduler.Scheduler
	running []scheduler.Assignment
	at      int
}

func (k *steadyKeys) step() (ok bool) {
	a := &k.running[k.at%len(k.running)]
	k.s.Release(a.Worker, a.Class, a.Priority)
	k.s.Push(task(k.at), a.Class, scheduler.Normal, 0)
	*a, ok = k.s.Next(nil)
	k.at++
	return ok
}

func keys(n int) (demands []scheduler.Demand) {
	for k := range n {
		demands = append(demands, withKey(fmt.Sprint("user-", k)))
	}
	return demands
}

// BenchmarkNextWithAffinity is a saturated cluster of 1,000 workers with and without 10,000
// keys, whose workers are known.
func BenchmarkNextWithAffinity(b *testing.B) {
	plain, keyed := newSaturated(scheduler.Demand{NoPrefetch: true}), newSaturated(keys(10_000)...)
	benchmarkPair(b, "affinity", plain.step, keyed.step)
}

// BenchmarkAffinityMiss chooses the worker of a key among 1,000 workers.
func BenchmarkAffinityMiss(b *testing.B) {
	s := fleetOf(1_000, 8)
	var classes []scheduler.ClassID
	for _, d := range keys(10_000) {
		classes = append(classes, s.Class(d))
	}
	at := 0
	for b.Loop() {
		if at%len(classes) == 0 { // all choices are forgotten
			s.SetAccepting(1, at/len(classes)%2 == 1)
		}
		if s.KeyWorker(classes[at%len(classes)]).Worker == 0 {
			b.Fatal("the key has no worker")
		}
		at++
	}
}
