package scheduler_test

import "testing"

// The other tests of allocations have fewer queues, owners and limits. Here, each step touches
// another ready queue, and an allocation of one in some steps would count: AllocsPerRun rounds
// down.
func TestTheFullWidthAllocatesNothing(t *testing.T) {
	// Not parallel: AllocsPerRun counts the allocations of all goroutines.
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for what, x := range map[string]struct {
		step func() bool
		warm int // steps until every slice has its final size
	}{
		"100 queues with 100 owners each": {newCrowded(100, 100, 100_000).step, 240_000},
		"10,000 full limits":              {newKeyed(10_000, 100_000).step, 30_000},
	} {
		run := func(n int) {
			for range n {
				if !x.step() {
					t.Fatal("nothing was assigned")
				}
			}
		}
		run(x.warm)
		const steps = 20_000
		if allocs := testing.AllocsPerRun(1, func() { run(steps) }); allocs > steps/1000 {
			t.Errorf("%s: %v allocations in %d steps, want none", what, allocs, steps)
		}
	}
}
