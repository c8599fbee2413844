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
			cmd := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", plainNext, "-test.benchtime", b.benchTime(), "-test.benchmem") //nolint:gosec // built above
			cmd.Dir = filepath.Join(sources[i], "scheduler")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("running the benchmark of the scheduler, %s: %w\n%s", unusedNames[i], err, out)
			}
			took, allocated, err := plainFigures(out)
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", unusedNames[i], err, out)
			}
			times[i], allocs[i] = append(times[i], took), append(allocs[i], allocated)
		}
	}
	unusedNames.rows(b, "features unused: scheduler, Next/plain", "ns/task", "alone, on one core, in turns; 1,000 workers x 8 slots, 10,000 tasks waiting",
		"target: at most 1.03 x", times[0], times[1])
	unusedNames.rows(b, "  features unused: scheduler, allocations", "per task", "", "target: 0", allocs[0], allocs[1])
	return nil
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
