package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

// unusedNames are those of the clusters of the section unused.
var unusedNames = pairNames{"base build", "this build"}

// A baseBuild is the commit that test/upgrade/base names. It had neither schedules nor queues, named
// limits, affinity or alternatives.
type baseBuild struct {
	cluster.Programs

	source string // directory of its files
}

// buildBase builds the programs of the commit in a directory of dir.
func buildBase(ctx context.Context, dir string) (baseBuild, error) {
	root, err := cluster.Root()
	if err != nil {
		return baseBuild{}, err //nolint:wrapcheck // says what it is
	}
	file := filepath.Join(root, "test", "upgrade", "base")
	commit, err := os.ReadFile(file)
	if err != nil {
		return baseBuild{}, fmt.Errorf("reading the commit of the base build: %w", err)
	}
	dir = filepath.Join(dir, "base")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return baseBuild{}, fmt.Errorf("making a directory for the base build: %w", err)
	}
	programs, err := cluster.BuildCommit(ctx, root, strings.TrimSpace(string(commit)), dir, "./cmd/dtaskd", "./cmd/dtask-worker", "./cmd/dtaskctl")
	if err != nil {
		return baseBuild{}, err //nolint:wrapcheck // names the commit
	}
	return baseBuild{Programs: programs, source: filepath.Join(dir, cluster.CommitSource)}, nil
}

// unused measures what the features of scheduling cost those who use none of them, against the
// build before them.
func unused(ctx context.Context, b *bench) error {
	base, err := buildBase(ctx, b.tools.dir)
	if err != nil {
		return err
	}
	many := *b
	many.rounds = b.unusedRounds
	for _, measure := range []func(context.Context, baseBuild) error{many.unusedNext, many.unusedWork, many.unusedMemory, many.unusedFailover} {
		if err := measure(ctx, base); err != nil {
			return err
		}
	}
	return nil
}

// unusedWork measures throughput, and the leader's CPU time and log of each task.
func (b *bench) unusedWork(ctx context.Context, base baseBuild) error {
	one := b.usualCluster()
	one.Programs = base.Programs
	return withPair(ctx, one, b.usualCluster(), func(p clusterPair) error {
		all, err := b.roundsOf(ctx, p, b.tasks, nil)
		if err != nil {
			return err
		}
		setting := fmt.Sprintf("%d tasks of 32 B in jobs of 10,000, %s", b.tasks, b.usual())
		unusedNames.rows(b, "features unused: tasks", "tasks/s", setting, "target: at least 0.98 x", rates(all[0]), rates(all[1]))
		if len(all[0][0].cpu) > 0 {
			cpu := func(r round) float64 { return float64(r.cpu[roleLeader].Microseconds()) / r.Tasks }
			unusedNames.rows(b, "  features unused: CPU of the leader", "µs/task", "", "target: at most 1.03 x", values(all[0], cpu), values(all[1], cpu))
		}
		log := func(r round) float64 { return r.LogBytes / r.Tasks }
		unusedNames.rows(b, "  features unused: log", "B/task", "one replica", "target: not more", values(all[0], log), values(all[1], log))
		return nil
	})
}

// unusedMemory measures the memory of pending tasks.
func (b *bench) unusedMemory(ctx context.Context, base baseBuild) error {
	var leaders, followers [2][]float64
	for range max(1, b.rounds/2) {
		for i, cfg := range []cluster.Config{{Programs: base.Programs}, {}} {
			leader, others, err := b.pendingMemory(ctx, cfg)
			if err != nil {
				return err
			}
			leaders[i], followers[i] = append(leaders[i], leader), append(followers[i], others...)
		}
	}
	unusedNames.rows(b, "features unused: memory per pending task, leader", "B", b.pendingSetting(), "target: not more", leaders[0], leaders[1])
	unusedNames.rows(b, "features unused: memory per pending task, followers", "B", "", "target: not more", followers[0], followers[1])
	return nil
}

// unusedFailover measures how long thousands of workers are without a leader.
func (b *bench) unusedFailover(ctx context.Context, base baseBuild) error {
	f := b.fleets()[1]
	var back [2][]float64
	for range b.kills {
		for i, cfg := range []cluster.Config{{Programs: base.Programs}, {}} {
			err := withFleet(ctx, cfg, f, b.tasks, func(l *fleetUnderLoad) error {
				times, err := l.kills(ctx, 1)
				back[i] = append(back[i], times...)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	unusedNames.rows(b, "features unused: leader killed, until completions resume", "ms",
		fmt.Sprintf("%d x SIGKILL of the leader, %s", b.kills, f), "target: at most 10 ms more", back[0], back[1])
	return nil
}
