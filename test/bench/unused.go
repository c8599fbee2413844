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
		targets := workTargets{"target: at least 0.98 x", "target: at most 1.03 x", "target: not more"}
		unusedNames.workRows(b, "features unused", setting, targets, all)
		return nil
	})
}

// unusedMemory measures the memory of pending tasks.
func (b *bench) unusedMemory(ctx context.Context, base baseBuild) error {
	inDefault := []string{""}
	return unusedNames.memoryRows(ctx, b, "features unused", [2]pendingTasks{{cfg: cluster.Config{Programs: base.Programs}, queues: inDefault}, {queues: inDefault}})
}

// unusedFailover measures how long thousands of workers are without a leader.
func (b *bench) unusedFailover(ctx context.Context, base baseBuild) error {
	f := b.fleets()[1]
	back, err := b.killsInTurns(ctx, f, [2]killedCluster{{cfg: cluster.Config{Programs: base.Programs}}, {}})
	if err != nil {
		return err
	}
	unusedNames.rows(b, "features unused: leader killed, until completions resume", "ms", b.killsSetting(f), "target: at most 10 ms more", back[0], back[1])
	return nil
}
