package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// The attempts of the first worker did not end: it reconnected without having got the stop.
func TestAQuotaPreemptionIsTriedAgainIfNothingEnds(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 8, Resources: cpus(8)})
	x.s.SetQueue("ml", scheduler.Queue{Max: cpus(4)})
	d := preemptible("ml")
	d.Resources = cpus(1)
	x.push(4, d, scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(2)}, scheduler.Urgent)
	x.start()
	x.wait()
	p, ok := x.preempt()
	if !ok {
		t.Fatal("no preemption")
	}
	delete(x.ending, p.Worker) // as reconcile does: preemptedBy = 0
	x.start()
	if _, ok := x.preempt(); !ok {
		t.Errorf("no preemption any more; kept forever: %+v", x.s.Reservations())
	}
}

// The start at the turn by age would be undone at once, again and again.
func TestTheStartByAgeIsNotPreemptedAtOnce(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 1})
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.push(1, preemptible("ml"), scheduler.Low)
	x.push(100, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.wait()
	for range 40 {
		a := x.running[0]
		x.end(a.Worker, a.Class, a.Priority)
		x.start()
		if x.running[0].Priority == scheduler.Low {
			if p, ok := x.preempt(); ok {
				t.Errorf("%+v ends in the batch in which it started", p.Yields)
			}
			return
		}
	}
	t.Error("the oldest task does not start")
}

// The quota becomes smaller while attempts end for a task.
func TestAPreemptionContinuesAfterTheQuotaIsLowered(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 8, Resources: cpus(8)})
	x.s.SetQueue("ml", scheduler.Queue{Max: cpus(4)})
	d := preemptible("ml")
	d.Resources = cpus(1)
	x.s.SetAccepting(2, false)
	x.push(4, d, scheduler.Low)
	x.start()
	x.s.SetAccepting(2, true)
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(2)}, scheduler.Urgent)
	x.start()
	x.wait()
	p, _ := x.preempt()
	x.s.SetQueue("ml", scheduler.Queue{Max: cpus(2)})
	x.endAll(p)
	x.start()
	if _, ok := x.preempt(); !ok {
		t.Errorf("no preemption any more; kept forever: %+v", x.s.Reservations())
	}
}

// Another queue takes the named limit each time that attempts have ended for the urgent task.
func TestPreemptionIsNotRepeatedInVainForANamedLimit(t *testing.T) {
	t.Parallel()
	x := newStage(0, scheduler.Capacity{})
	label := func(name string) []scheduler.Label { return []scheduler.Label{{Name: "pool", Value: name}} }
	x.s.AddWorker(1, scheduler.Capacity{Slots: 1, Labels: label("a")})
	x.s.AddWorker(2, scheduler.Capacity{Slots: 1, Labels: label("b")})
	low := preemptible("ml")
	low.Labels = label("a")
	x.push(10, low, scheduler.Low)
	x.start()
	urgent := scheduler.Demand{Queue: "ml", Labels: label("a"), Uses: []string{"license"}}
	x.push(1, urgent, scheduler.Urgent)
	x.s.SetNamedLimit("license", 1)
	x.start()
	x.wait()
	ended := 0
	for range 5 {
		p, ok := x.preempt()
		if !ok {
			break
		}
		x.push(1, scheduler.Demand{Queue: "other", Labels: label("b"), Uses: []string{"license"}}, scheduler.Low)
		x.start() // takes the limit
		ended++
		x.endAll(p)
		x.start() // the next low task takes the place
		i := slices.IndexFunc(x.running, func(a scheduler.Assignment) bool { return a.Worker == 2 })
		x.end(2, x.running[i].Class, x.running[i].Priority)
		x.start()
	}
	if ended > 1 {
		t.Errorf("attempts ended %d times for a task that did not start", ended)
	}
}

// A program sets another quota each second, while an attempt takes its kill_grace to end.
func TestChangesOfAQuotaDoNotPreemptMoreForTheSameTask(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 4})
	x.push(8, preemptible("ml"), scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.wait()
	n := 0
	for i := range uint32(6) {
		x.s.SetQueue("ml", scheduler.Queue{MaxRunning: 20 + i})
		x.start()
		if p, ok := x.preempt(); ok {
			n++
			for _, y := range p.Yields {
				x.s.Yields(p.Worker, y.Class, y.Priority, -y.N)
			}
		}
	}
	if n != 1 {
		t.Errorf("%d attempts end for one urgent task", n)
	}
}

// The first worker has a preemptible task of the queue. The second one was kept for a task of another
// queue, for which too little has ended.
func TestNothingEndsForATaskThatFitsAWorkerThatIsNotKeptAnyMore(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 1, Resources: cpus(1)})
	demand := func(queue string, cpu int64) scheduler.Demand {
		d := preemptible(queue)
		d.Resources = cpus(cpu)
		return d
	}
	x.push(1, demand("ml", 1), scheduler.Low)
	x.start()
	x.s.AddWorker(2, scheduler.Capacity{Slots: 2, Resources: cpus(2)})
	x.push(2, demand("etl", 1), scheduler.Low)
	x.start()
	x.push(1, demand("etl", 2), scheduler.Urgent)
	x.wait()
	p, ok := x.preempt()
	if !ok || p.Worker != 2 || p.Yields[0].N != 2 {
		t.Fatalf("got %+v, %v, want two ends on worker 2", p, ok)
	}
	urgent := x.push(1, demand("ml", 1), scheduler.Urgent)
	y := p.Yields[0]
	x.end(2, y.Class, y.Priority)
	x.s.Yields(2, y.Class, y.Priority, -1) // the other one continues
	delete(x.ending, 2)
	x.wait()
	x.start()
	if p, ok := x.preempt(); ok {
		t.Errorf("%+v, although a place is free", p)
	}
	if started := x.start(); len(started) != 1 || started[0].Task != urgent || started[0].Worker != 2 {
		t.Errorf("%+v start, want the urgent task on worker 2", started)
	}
}
