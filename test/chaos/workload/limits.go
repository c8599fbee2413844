package workload

import (
	"context"
	"math/rand/v2"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
)

// Limits of the workload with a number: one that all tasks of its name share, and one of each
// tenant. Both are 1 during the whole run: the checkers read in the ledger that nothing is held
// twice.
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
	settings := make(map[string]*dtaskv1.LimitSettings)
	for _, name := range []string{soleLimit, tenantLimit} {
		settings[name] = &dtaskv1.LimitSettings{Running: 1}
	}
	for name, r := range limitRates {
		settings[name] = &dtaskv1.LimitSettings{
			Rate: uint32(r.Starts), PeriodMs: uint32(r.Period.Milliseconds()), Burst: uint32(r.Burst), //nolint:gosec // small constants
		}
	}
	for name, to := range settings {
		if _, err := o.w.clients[0].SetLimit(ctx, name, to, 0); err != nil {
			return err //nolint:wrapcheck // its callers try again
		}
	}
	return nil
}

// limitRates are the limits with a rate, during the whole run. A leader that began with full
// buckets would exceed them after each election that takes less time than it takes to fill one.
var limitRates = map[string]check.Rate{
	"rated":   {Starts: 60, Period: time.Minute, Burst: 4},
	"rated/*": {Starts: 2, Period: time.Second, Burst: 3},
}

// ratedUsers returns the shapes of users who submit one job with a limit after another. A
// limit has one user: the checker knows best when tasks were assigned if they wait for no
// others.
func ratedUsers() (all [][]shape) {
	for _, use := range []struct{ limit, key string }{{"rated", "rated"}, {"rated/*", "rated/acme"}, {"rated/*", "rated/bcme"}} {
		rate := limitRates[use.limit]
		uses := func(*rand.Rand) []string { return []string{use.key} }
		all = append(all, []shape{
			{name: "rated", weight: 3, make: func(random *rand.Rand) []check.PlannedTask { return numbered(5 + random.IntN(4)) }, uses: uses, rate: &rate},
			{name: "paced", weight: 1, make: chain, uses: uses, rate: &rate},
		})
	}
	return all
}
