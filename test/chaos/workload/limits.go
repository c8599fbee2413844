package workload

import (
	"context"
	"math/rand/v2"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Limits of the workload: one that all tasks of its name share, and one of each tenant. Both
// are 1 during the whole run: the checkers read in the ledger that nothing is held twice.
const (
	soleLimit   = "sole"
	tenantLimit = "tenant/*"
)

// limitedUsers are users beside the others who submit jobs with limits. A new leader lets such
// tasks start only when it knows what runs, up to a lease later: other users would spend most
// of a run waiting for them.
const limitedUsers = 3

// limitedShapes are the jobs with limits.
func limitedShapes() []shape {
	one := func(uses ...string) func(*rand.Rand) []string {
		return func(*rand.Rand) []string { return uses }
	}
	return []shape{
		{name: "sole", weight: 4, make: fan, uses: one(soleLimit)},
		{name: "tenant", weight: 4, make: fan, uses: func(random *rand.Rand) []string {
			return []string{[]string{"tenant/acme", "tenant/bcme"}[random.IntN(2)]}
		}},
		{name: "both", weight: 2, make: diamond, uses: one(soleLimit, "tenant/acme")},
		{name: "held", weight: 2, make: diamond, uses: one("tenant/bcme"), held: true},
	}
}

// setLimits makes the limits.
func (o *operator) setLimits(ctx context.Context) error {
	for _, name := range []string{soleLimit, tenantLimit} {
		if _, err := o.w.clients[0].SetLimit(ctx, name, &dtaskv1.LimitSettings{Running: 1}, 0); err != nil {
			return err //nolint:wrapcheck // its callers try again
		}
	}
	return nil
}
