package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// sameSettings returns the limits with the settings of one: all keys of it, if it has a key.
func (f *fork) sameSettings(limit string) []string {
	name, _, keyed := strings.Cut(limit, "/")
	if !keyed {
		return []string{limit}
	}
	return slices.DeleteFunc(f.NamedLimits(), func(x string) bool { return !strings.HasPrefix(x, name+"/") })
}

// bruteForceLimits tries to change each named limit of a task.
func bruteForceLimits(f *fork, d scheduler.Demand, least func(from, to, step, enough int64, c scheduler.Change)) {
	for _, name := range d.Uses {
		n := int64(f.limits[name])
		if n > 0 {
			least(n+1, n+60, 1, 1000, scheduler.Change{Kind: scheduler.RaiseNamedLimit, Name: name})
		}
		c := scheduler.Change{Kind: scheduler.RemoveRate, Name: name}
		switch _, rated := f.Tokens(name); {
		case rated && n == 0:
			least(1, 60, 1, 1000, c)
		case rated:
			least(0, 1, 1, 0, c)
		}
	}
}

// A limit is changed for all tasks that use it, and those before the task start first.
func TestChangesKnowHowFarALimitIsToBeRaised(t *testing.T) {
	t.Parallel()
	var total changeCounts
	for n := range *changeStates {
		if !checkChanges(t, newLimitState(*changeSeed+uint64(n)), &total) { //nolint:gosec // not negative
			return
		}
	}
	total.check(t)
	for _, k := range []scheduler.ChangeKind{scheduler.RaiseNamedLimit, scheduler.RemoveRate} {
		if *changeStates >= 60 && total.kinds[k] == 0 {
			t.Errorf("no state with a change of kind %d", k)
		}
	}
}

// newLimitState returns a random state in which a named limit is often the only obstacle.
func newLimitState(seed uint64) *randomState {
	r := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // reproducible
	var demands []scheduler.Demand
	for range 1 + r.IntN(3) {
		d := scheduler.Demand{NoPrefetch: r.IntN(2) == 0, Uses: []string{"api/" + someKeys[r.IntN(2)]}}
		if r.IntN(3) == 0 {
			d.Uses = append(d.Uses, "db")
		}
		if r.IntN(4) == 0 {
			d.Resources = []scheduler.Quantity{{Name: "gpu", Amount: 1 + int64(r.IntN(2))}}
		}
		demands = append(demands, d)
	}
	limit, rated, slots := uint32(r.IntN(4)), r.IntN(2) == 0, 4+r.IntN(8) //nolint:gosec // small
	tokens := []uint32{uint32(r.IntN(3)), uint32(r.IntN(3))}              //nolint:gosec // small
	var tasks []scheduler.Demand
	for range 1 + r.IntN(8) {
		tasks = append(tasks, demands[r.IntN(len(demands))])
	}
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: slots, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 6}}})
		f.setNamedLimit("db", 3)
		for i, key := range someKeys[:2] {
			f.setNamedLimit("api/"+key, limit)
			if rated {
				f.SetTokens("api/"+key, tokens[i])
			}
		}
	}, tasks...)
	st.seed, st.r = seed, r
	return st
}
