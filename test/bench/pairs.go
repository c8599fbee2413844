package main

import (
	"context"

	"github.com/dtask/dtask/test/cluster"
)

// A clusterPair is two clusters that run side by side and differ in one thing. Their rounds
// alternate, so that whatever else the machine does affects both.
type clusterPair [2]*cluster.Cluster

// withPair starts both clusters.
func withPair(ctx context.Context, one, other cluster.Config, f func(clusterPair) error) error {
	return with(ctx, one, func(first *cluster.Cluster) error {
		return with(ctx, other, func(second *cluster.Cluster) error { return f(clusterPair{first, second}) })
	})
}

// roundsOf runs dtaskctl bench with these arguments on one cluster and the other, once per round,
// after a small warm-up run of each.
func (b *bench) roundsOf(ctx context.Context, p clusterPair, tasks int, args []string) (all [2][]round, err error) {
	for i := range b.rounds + 1 {
		n := tasks
		if i == 0 {
			n = max(1, tasks/10)
		}
		for at, c := range p {
			r, err := oneRound(ctx, c, n, args)
			if err != nil {
				return all, err
			}
			if i > 0 {
				all[at] = append(all[at], r)
			}
		}
	}
	return all, nil
}

// A pairNames says how two clusters differ.
type pairNames [2]string

// rows adds a row for each of the two clusters, the second with its ratio to the first.
func (n pairNames) rows(b *bench, what, unit, setting, target string, one, other []float64) {
	first := what + ", " + n[0]
	b.table.add(first, unit, setting, one...)
	b.table.compare(what+", "+n[1], unit, target, first, other...)
}
