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

// workTargets are the targets of workRows. Each may be empty.
type workTargets struct{ tasks, cpu, log string }

// workRows adds the throughput of the rounds of two kinds, and the leader's CPU time and log of each
// task.
func (n pairNames) workRows(b *bench, what, setting string, targets workTargets, all [2][]round) {
	n.rows(b, what+": tasks", "tasks/s", setting, targets.tasks, rates(all[0]), rates(all[1]))
	if len(all[0][0].cpu) > 0 {
		cpu := func(r round) float64 { return float64(r.cpu[roleLeader].Microseconds()) / r.Tasks }
		n.rows(b, "  "+what+": CPU of the leader", "µs/task", "", targets.cpu, values(all[0], cpu), values(all[1], cpu))
	}
	log := func(r round) float64 { return r.LogBytes / r.Tasks }
	n.rows(b, "  "+what+": log", "B/task", "one replica", targets.log, values(all[0], log), values(all[1], log))
}

// memoryRows measures the memory of pending tasks of two kinds in turns, and adds it.
func (n pairNames) memoryRows(ctx context.Context, b *bench, what string, kinds [2]pendingTasks) error {
	var leaders, followers [2][]float64
	for range max(1, b.rounds/2) {
		for i, kind := range kinds {
			leader, others, err := b.pendingMemory(ctx, kind)
			if err != nil {
				return err
			}
			leaders[i], followers[i] = append(leaders[i], leader), append(followers[i], others...)
		}
	}
	n.rows(b, what+": memory per pending task, leader", "B", b.pendingSetting(), "target: not more", leaders[0], leaders[1])
	n.rows(b, what+": memory per pending task, followers", "B", "", "target: not more", followers[0], followers[1])
	return nil
}
