package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// Workers that differ in anything that a task needs are not explained as one, and those
// that differ in nothing else are.
func TestOnlyWorkersThatAreEqualForATaskAreAGroup(t *testing.T) {
	t.Parallel()
	zone, host := scheduler.Label{Name: "zone", Value: "eu"}, scheduler.Label{Name: "host", Value: "a"}
	cpu := []scheduler.Quantity{{Name: "cpu", Amount: 1000}}
	demand := scheduler.Demand{Type: "command", Namespace: "etl", Labels: []scheduler.Label{zone}, Resources: cpu}
	equal := scheduler.Capacity{Labels: []scheduler.Label{zone}, Types: []string{"command"}, Namespaces: []string{"etl"}, Resources: cpu}
	for name, c := range map[string]struct {
		change func(c *scheduler.Capacity)
		groups int
	}{
		"nothing":       {func(*scheduler.Capacity) {}, 1},
		"a label":       {func(c *scheduler.Capacity) { c.Labels = nil }, 2},
		"another label": {func(c *scheduler.Capacity) { c.Labels = []scheduler.Label{zone, host} }, 1},
		"a type":        {func(c *scheduler.Capacity) { c.Types = []string{"noop"} }, 2},
		"another type":  {func(c *scheduler.Capacity) { c.Types = []string{"command", "noop"} }, 1},
		"a namespace":   {func(c *scheduler.Capacity) { c.Namespaces = []string{"web"} }, 2},
		"a resource":    {func(c *scheduler.Capacity) { c.Resources = nil }, 2},
		"reservation":   {func(c *scheduler.Capacity) { c.Reserved = true }, 2},
		"slots":         {func(c *scheduler.Capacity) { c.Slots = 1 }, 2},
		"another resource": {func(c *scheduler.Capacity) {
			c.Resources = []scheduler.Quantity{cpu[0], {Name: "gpu", Amount: 1}}
		}, 1},
	} {
		s := scheduler.New(1)
		s.AddWorker(1, equal)
		other := equal
		c.change(&other)
		s.AddWorker(2, other)
		v := s.View(task(1), s.Class(demand), scheduler.Normal, 0, nil)
		if got := len(v.Groups()); got != c.groups {
			t.Errorf("workers that differ in %s: got %d groups, want %d", name, got, c.groups)
		}
	}
}

// A view that was taken before a worker changed shows what it offered then.
func TestAViewKeepsWhatWorkersOfferedBefore(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	before := s.View(task(1), 0, scheduler.Normal, 0, nil)
	s.AddWorker(1, scheduler.Capacity{})
	s.AddWorker(2, scheduler.Capacity{Slots: 1})
	after := s.View(task(1), 0, scheduler.Normal, 0, nil)
	if !before.Fits() || len(before.Workers()) != 1 {
		t.Errorf("before: got %+v", before.Workers())
	}
	if w := after.Workers(); len(w) != 2 || w[0].Fits() || !w[1].Fits() {
		t.Errorf("after: got %+v", w)
	}
}
