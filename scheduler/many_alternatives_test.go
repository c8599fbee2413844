package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dtask/dtask/scheduler"
)

// A view is taken in the leader's loop. Each key of an affinity has classes of its own, one for
// each alternative: with 20,000 keys, a view that compares all of their classes with each other
// takes a minute.
func TestAViewOfManyKeysWithAlternativesTakesLittleTime(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1, Resources: cpu(1)})
	s.Occupy(1, s.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Normal)
	var last scheduler.ClassID
	for i := range 20_000 {
		last = s.Class(scheduler.Demand{Affinity: fmt.Sprint(i), Resources: cpu(2), Alternatives: [][]scheduler.Quantity{cpu(1)}})
		s.Push(task(i), last, scheduler.Normal, 0)
	}
	began := time.Now()
	s.Views(task(19_999), last, scheduler.Normal, 0, nil)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("two views take %v, want less than a second", took)
	}
}
