package scheduler_test

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// An owner of tasks with equal demands in a drf.
type drfOwner struct {
	name   string
	demand map[string]int64
	starts int
	served int // number of its last start
}

// A drf is dominant-resource fairness as progressive filling on one machine: Ghodsi et al.,
// "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types", NSDI 2011,
// Algorithm 1. Unlike there, an owner whose next task does not fit is left out, and the others
// continue.
type drf struct {
	total, free map[string]int64
	owners      []*drfOwner
	started     int
}

func (d *drf) fits(o *drfOwner) bool {
	for name, n := range o.demand {
		if d.free[name] < n {
			return false
		}
	}
	return true
}

func (d *drf) dominant(o *drfOwner) *big.Rat {
	most := new(big.Rat)
	for name, n := range o.demand {
		if s := big.NewRat(n*int64(o.starts), d.total[name]); s.Cmp(most) > 0 {
			most = s
		}
	}
	return most
}

// next starts a task of the owner with the smallest dominant share of those whose task fits,
// and returns the owner's name; empty without one. Of equal ones it is the least recently
// served one.
func (d *drf) next() string {
	var fit []*drfOwner
	for _, o := range d.owners {
		if d.fits(o) {
			fit = append(fit, o)
		}
	}
	if len(fit) == 0 {
		return ""
	}
	o := slices.MinFunc(fit, func(a, b *drfOwner) int {
		return cmp.Or(d.dominant(a).Cmp(d.dominant(b)), cmp.Compare(a.served, b.served), cmp.Compare(a.name, b.name))
	})
	for name, n := range o.demand {
		d.free[name] -= n
	}
	d.started++
	o.starts++
	o.served = d.started
	return o.name
}

// sharing returns a scheduler with one worker that has slots and the resources, and the
// function that starts the next task and returns its owner.
func sharing(owners map[string][]scheduler.Quantity, slots int, total []scheduler.Quantity) (next func() string) {
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: slots, Resources: total})
	of, n := make(map[scheduler.TaskRef]string), 0
	for owner, demand := range owners { // unordered: age does not decide before the 16th start
		for range slots + 1 {
			of[task(n)] = owner
			s.Push(task(n), s.Class(scheduler.Demand{Owner: owner, Resources: demand}), scheduler.Normal, 0)
			n++
		}
	}
	return func() string {
		a, ok := s.Next(nil)
		if !ok {
			return ""
		}
		return of[a.Task]
	}
}

// The example of §4.1 there: on 9 CPUs and 18 GB, owners whose tasks take 1 CPU and 4 GB, and 3
// CPUs and 1 GB, get 3 and 2 tasks, and both hold two thirds of what they need most.
func TestOwnersShareAsInTheExampleOfDominantResourceFairness(t *testing.T) {
	t.Parallel()
	resources := func(cpu, memory int64) []scheduler.Quantity {
		return []scheduler.Quantity{{Name: "cpu", Amount: cpu}, {Name: "memory", Amount: memory}}
	}
	next := sharing(map[string][]scheduler.Quantity{"a": resources(1, 4), "b": resources(3, 1)}, 100, resources(9, 18))
	starts := map[string]int{}
	for owner := next(); owner != ""; owner = next() {
		starts[owner]++
	}
	if starts["a"] != 3 || starts["b"] != 2 {
		t.Errorf("got %v, want 3 tasks of a and 2 of b", starts)
	}
}

// The first 15 starts, before any turn by age, are those of progressive filling.
func TestOwnersShareAsTheTextbookSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 15).Draw(t, "slots")
		names := []string{"cpu", "gpu", "memory"}
		d := drf{total: map[string]int64{"": int64(slots)}, free: map[string]int64{"": int64(slots)}}
		var total []scheduler.Quantity
		for _, name := range names {
			n := rapid.Int64Range(1, 30).Draw(t, name)
			d.total[name], d.free[name] = n, n
			total = append(total, scheduler.Quantity{Name: name, Amount: n})
		}
		owners := make(map[string][]scheduler.Quantity)
		for i := range rapid.IntRange(1, 4).Draw(t, "owners") {
			o := &drfOwner{name: fmt.Sprintf("o%d", i), demand: map[string]int64{"": 1}}
			owners[o.name] = nil
			for _, name := range names {
				if n := rapid.Int64Range(0, 8).Draw(t, "needs "+name); n > 0 {
					o.demand[name] = n
					owners[o.name] = append(owners[o.name], scheduler.Quantity{Name: name, Amount: n})
				}
			}
			d.owners = append(d.owners, o)
		}
		next := sharing(owners, slots, total)
		for start := range slots + 1 {
			if got, want := next(), d.next(); got != want {
				t.Fatalf("start %d is of %q, want %q", start+1, got, want)
			}
		}
	})
}
