package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/cluster"
)

// Limits of the traffic of handovers: of 1, except the pool.
const (
	poolLimit   = "pool"
	poolHolders = 3
)

// handedLimits are what tasks use: limits with a number of their own, and keys of one.
func handedLimits() []string {
	var all []string
	for c := 'a'; c <= 'h'; c++ {
		all = append(all, "lock-"+string(c), "tenant/"+string(c), "tenant/"+string(c)+string(c))
	}
	return append(all, poolLimit)
}

const (
	// longTasks is how many tasks there are for each one that lasts longer than a leader
	// waits for a worker: a limit may be given away only after the worker's lease.
	longTasks = 150
	// cancelledWithin is how long the jobs in progress may take to be cancelled. It is a guard.
	cancelledWithin = 2 * time.Minute
)

// runHandovers lets users submit jobs of short tasks with limits until the given time. Then it
// cancels those in progress: if leaders have changed often, they would wait for leases.
func (w *Workload) runHandovers(ctx, until context.Context) error {
	limits := map[string]uint32{tenantLimit: 1, poolLimit: poolHolders}
	for _, name := range handedLimits() {
		if strings.HasPrefix(name, "lock-") {
			limits[name] = 1
		}
	}
	for name, n := range limits {
		err := cluster.Until(until, "limit "+name+" is set", time.Minute, func(ctx context.Context) error {
			_, err := w.clients[0].SetLimit(ctx, name, &dtaskv1.LimitSettings{Running: n}, 0)
			return err //nolint:wrapcheck // the caller wraps it
		})
		if err != nil {
			return fmt.Errorf("setting limits: %w", err)
		}
	}
	var group sync.WaitGroup
	for i := range handedLimits() {
		shapes := []shape{handedShape(i)}
		one := &user{w: w, c: w.clients[i%len(w.clients)], number: i, random: rand.New(rand.NewPCG(w.cfg.Seed, uint64(1000+i))), shapes: shapes}
		group.Go(func() { one.run(ctx, until) })
	}
	group.Wait()
	if err := cluster.Until(ctx, "jobs in progress are cancelled", cancelledWithin, w.cancelOpen); err != nil {
		return fmt.Errorf("ending the handovers: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// cancelOpen cancels all jobs that have not ended.
func (w *Workload) cancelOpen(ctx context.Context) error {
	u := &user{w: w, c: w.clients[0], number: operatorNumber}
	for job, err := range u.c.Jobs(ctx, client.JobFilter{States: openStates()}) {
		if err != nil {
			return fmt.Errorf("listing jobs: %w", err)
		}
		if err := u.cancelOnce(ctx, job.GetId(), ""); err != nil && !errors.Is(err, client.ErrConflict) { // else it has ended meanwhile
			return err
		}
	}
	return nil
}

// handedShape is a job of the tasks of one limit. Every eighth job of most limits uses the next
// one, too.
func handedShape(i int) shape {
	all := handedLimits()
	s := shape{name: "handed", weight: 1, handed: true}
	s.make = func(random *rand.Rand) []check.PlannedTask { return numbered(80 + random.IntN(80)) }
	s.uses = func(random *rand.Rand) []string {
		if i+2 < len(all) && random.IntN(8) == 0 {
			return all[i : i+2]
		}
		return all[i : i+1]
	}
	if all[i] == poolLimit {
		s.holders = poolHolders
	}
	return s
}

// handedWork returns how long a task holds its limits.
func handedWork(random *rand.Rand) int64 {
	if random.IntN(longTasks) == 0 {
		return 4000 + random.Int64N(4000)
	}
	return 1 + random.Int64N(10)
}
