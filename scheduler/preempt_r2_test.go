package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

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
