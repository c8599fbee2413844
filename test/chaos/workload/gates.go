package workload

import (
	"math/rand/v2"
	"time"

	"github.com/dtask/dtask/test/chaos/check"
)

// gatedUsers are users beside the others who submit jobs with gates. Such jobs wait for each
// other: other users would spend most of a run waiting for them.
const gatedUsers = 6

// gatedShapes are the jobs that wait for a time or for a concurrency key, or expire. Two keys
// are for many users, so that jobs wait for each other. In the one with the rule replace, all
// jobs have that rule: others would rarely run.
func gatedShapes() []shape {
	gate := func(key, overlap string) func(*rand.Rand) *check.Gate {
		return func(*rand.Rand) *check.Gate { return &check.Gate{Key: key, Overlap: overlap} }
	}
	return []shape{
		{name: "later", weight: 3, make: diamond, gate: func(random *rand.Rand) *check.Gate {
			return &check.Gate{After: time.Duration(500+random.IntN(3500)) * time.Millisecond}
		}},
		{name: "serial", weight: 4, make: fan, gate: gate("serial", "wait-all")},
		{name: "waiting", weight: 2, make: diamond, gate: gate("serial", "wait")},
		{name: "alone", weight: 1, make: diamond, gate: gate("serial", "skip")},
		{name: "expiring", weight: 3, make: diamond, gate: func(random *rand.Rand) *check.Gate {
			return &check.Gate{Key: "serial", Overlap: "wait-all", Expires: time.Duration(100+random.IntN(2000)) * time.Millisecond}
		}},
		{name: "newest", weight: 4, make: diamond, gate: gate("newest", "replace"), held: true},
		{name: "latest", weight: 2, make: fan, gate: func(random *rand.Rand) *check.Gate {
			return &check.Gate{Key: "newest", Overlap: "replace", After: time.Duration(random.IntN(1000)) * time.Millisecond}
		}},
	}
}

// gated puts a gate into a job.
func gated(job map[string]any, g *check.Gate) {
	if g.After > 0 {
		job["start_after"] = g.After.String()
	}
	if g.Expires > 0 {
		job["expires"] = g.Expires.String()
	}
	if g.Key != "" {
		job["concurrency"] = map[string]any{"key": g.Key, "limit": 1, "overlap": g.Overlap}
	}
}
