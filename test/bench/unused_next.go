package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/dtask/dtask/test/cluster"
)

// plainNext selects the benchmark of a task that uses no feature: the end of an attempt, a push and
// a start. Both builds have it, with the same text.
const plainNext = "^BenchmarkNext$/^plain$"

// unusedNext measures the scheduler alone, without a log, a network or a disk.
func (b *bench) unusedNext(ctx context.Context, base baseBuild) error {
	root, err := cluster.Root()
	if err != nil {
		return err //nolint:wrapcheck // says what it is
	}
	var times, allocs [2][]float64
	var programs [2]string
	sources := [2]string{base.source, root}
	for i, source := range sources {
		programs[i] = filepath.Join(b.tools.dir, fmt.Sprintf("scheduler-%d.test", i))
		if err := buildTest(ctx, source, "scheduler", programs[i]); err != nil {
			return err
		}
	}
	for range b.rounds {
		for i, program := range programs {
			took, allocated, err := oneBenchmark(ctx, b, program, filepath.Join(sources[i], "scheduler"), plainNext)
			if err != nil {
				return fmt.Errorf("%s: %w", unusedNames[i], err)
			}
			times[i], allocs[i] = append(times[i], took), append(allocs[i], allocated)
		}
	}
	unusedNames.rows(b, "features unused: scheduler, Next/plain", "ns/task", "alone, on one core, in turns; 1,000 workers x 8 slots, 10,000 tasks waiting",
		"target: at most 1.03 x", times[0], times[1])
	unusedNames.rows(b, "  features unused: scheduler, allocations", "per task", "", "target: 0", allocs[0], allocs[1])
	return b.preemptionNext(ctx, programs[1], filepath.Join(root, "scheduler"))
}

// preemptionNext measures what it costs the scheduler that all tasks are preemptible, while no urgent
// task waits. program has the tests of the scheduler of this build.
func (b *bench) preemptionNext(ctx context.Context, program, dir string) error {
	names := pairNames{"none", "all"}
	var times, allocs [2][]float64
	for range b.rounds {
		for i, name := range []string{"plain", "preemptible"} {
			took, allocated, err := oneBenchmark(ctx, b, program, dir, "^BenchmarkNextPreemptible$/^"+name+"$")
			if err != nil {
				return fmt.Errorf("tasks that are preemptible, %s: %w", names[i], err)
			}
			times[i], allocs[i] = append(times[i], took), append(allocs[i], allocated)
		}
	}
	names.rows(b, "no urgent task: scheduler, preemptible tasks", "ns/task", "alone, on one core, in turns; 1,000 workers x 8 slots, all busy, 192,000 tasks waiting",
		"", times[0], times[1])
	names.rows(b, "  no urgent task: scheduler, allocations, preemptible tasks", "per task", "", "target: 0", allocs[0], allocs[1])
	return nil
}

// oneBenchmark runs the only benchmark of a pattern, and returns the time and the allocations of each
// operation.
func oneBenchmark(ctx context.Context, b *bench, program, dir, pattern string) (ns, allocs float64, err error) {
	cmd := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", b.benchTime(), "-test.benchmem") //nolint:gosec // built by the caller
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("running the benchmark of the scheduler: %w\n%s", err, out)
	}
	if ns, allocs, err = plainFigures(out); err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, out)
	}
	return ns, allocs, nil
}

// buildTest builds the tests of a package of the module in source.
func buildTest(ctx context.Context, source, name, program string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-o", program, "./"+name) //nolint:gosec // a package of this repository
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the tests of %s: %w\n%s", name, err, out)
	}
	return nil
}

// plainFigures returns the time and the allocations of each operation of the only benchmark in the
// output of a test.
func plainFigures(out []byte) (ns, allocs float64, err error) {
	lines := parseLines(out)
	if len(lines) != 1 {
		return 0, 0, fmt.Errorf("got %d benchmarks, want 1", len(lines))
	}
	units := make(map[string]float64)
	for _, f := range lines[0] {
		units[f.unit] = f.value
	}
	ns, timed := units["ns/op"]
	allocs, counted := units["allocs/op"]
	if !timed || !counted {
		return 0, 0, errors.New("the benchmark has not printed its time and its allocations")
	}
	return ns, allocs, nil
}
