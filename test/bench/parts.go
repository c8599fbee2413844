package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

// packages have the benchmarks of the table: the replicated state, the scheduler, the times of
// schedules, the gates of jobs and the GPUs of a worker, without a network or a disk. Each has an
// expression that selects its benchmarks.
var packages = []struct{ name, chosen string }{
	{"fsm", "."},
	{"scheduler", "."},
	{"scheduler/forecast", "."},
	{"internal/calendar", "."},
	{"coordinator/sequencer", "^BenchmarkBesideGates$"},
	{"worker/gpu", "."},
}

// A partFigure is a figure of a package.
type partFigure struct{ name, unit string }

// A partTarget is the target of a figure.
type partTarget struct {
	text    string
	against string // name of the figure that it is a multiple of; empty: it is absolute
}

// fullWidth is the task of 100 queues with 100 owners each. It waits for memory, so that its target
// is a multiple of such a wait (ADR 50).
const fullWidth = "scheduler: NextWithQueues/100_queues_100_owners_1M_waiting"

// partTargets are the targets of figures.
var partTargets = map[partFigure]partTarget{
	{"scheduler: Next/pack", "ns/op"}:                                        {text: "at most 450 ns"},
	{fullWidth, "ns-with-queues"}:                                            {text: "at most 16 x", against: "scheduler: DependentLoads"},
	{"scheduler: AffinityMiss", "ns/op"}:                                     {text: "at most 600 ns"},
	{"scheduler: NextWithLimits/2_limits", "ns-more"}:                        {text: "at most 100 ns"},
	{"scheduler: NextWithLimits/10000_full_1M_waiting", "ns-with-limits"}:    {text: "at most 1,200 ns"},
	{"scheduler: Explain/1000_workers/whole", "ns/op"}:                       {text: "at most 2 ms"},
	{"scheduler: Explain/10000_workers/whole", "ns/op"}:                      {text: "at most 15 ms"},
	{"coordinator/sequencer: BesideGates/100000_wait_for_a_time", "ns-more"}: {text: "at most 5 µs"},
	{"worker/gpu: Take/one", "ns/op"}:                                        {text: "at most 2 µs"},
	{"internal/calendar: NextOfTenThousandSchedules", "ms"}:                  {text: "at most 100 ms"},
	{"internal/calendar: RarestNext", "ms"}:                                  {text: "at most 1 ms"},
}

// parts runs benchmarks of parts of the programs.
func parts(ctx context.Context, b *bench) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	for _, of := range packages {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", of.chosen, "-benchtime", b.benchTime(), "-count", strconv.Itoa(b.rounds), "./"+of.name)
		cmd.Dir = root
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("running benchmarks: %w\n%s", err, out)
		}
		b.parts(of.name, parseBenchmarks(out))
	}
	return b.haveTargets()
}

// benchTime is how long a Go benchmark runs in each round.
func (b *bench) benchTime() string {
	if b.quick {
		return "0.05s"
	}
	return "0.5s"
}

// parts adds a row for each figure, in order of first occurrence.
func (b *bench) parts(name string, list []benchmark) {
	var order []partFigure
	measured := make(map[partFigure][]float64)
	for _, one := range list {
		f := partFigure{name + ": " + one.name, one.unit}
		if measured[f] == nil {
			order = append(order, f)
		}
		measured[f] = append(measured[f], one.value)
	}
	for _, f := range order {
		setting, to := "alone, on one core", partTargets[f]
		if to.text != "" {
			setting += "; target: " + to.text
		}
		b.table.compare(f.name, f.unit, setting, to.against, measured[f]...)
	}
}

// haveTargets returns an error if a figure that has a target is missing: its benchmark has another
// name now.
func (b *bench) haveTargets() error {
	var missing []error
	for f := range partTargets { // unordered: the errors are sorted
		if !slices.ContainsFunc(b.table.Rows, func(r row) bool { return r.What == f.name && r.Unit == f.unit }) {
			missing = append(missing, fmt.Errorf("no figure %q in %s, which has a target", f.name, f.unit))
		}
	}
	slices.SortFunc(missing, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
	return errors.Join(missing...)
}

// A benchmark is one figure of a Go benchmark.
type benchmark struct {
	name, unit string
	value      float64
}

// parseBenchmarks parses each line of go test -bench: the figures that the benchmark
// reports itself, or its time if it reports none. Of a pair, which has one figure with something
// and one without, the difference is a figure as well.
func parseBenchmarks(out []byte) []benchmark {
	var list []benchmark
	for _, all := range parseLines(out) {
		own := slices.DeleteFunc(slices.Clone(all), func(f benchmark) bool { return strings.HasSuffix(f.unit, "/op") })
		if len(own) == 0 {
			own = all[:1]
		}
		list = append(append(list, own...), difference(own)...)
	}
	return list
}

// difference returns by how much the figure with something is above that without it; nothing if
// these are not the figures of a pair.
func difference(of []benchmark) []benchmark {
	with, without := math.NaN(), math.NaN()
	for _, f := range of {
		switch {
		case strings.HasPrefix(f.unit, "ns-with-"):
			with = f.value
		case strings.HasPrefix(f.unit, "ns-without-"):
			without = f.value
		}
	}
	if more := with - without; !math.IsNaN(more) {
		return []benchmark{{name: of[0].name, unit: "ns-more", value: more}}
	}
	return nil
}

// parseLines returns all figures of each line of go test -bench, of which the first is the time.
func parseLines(out []byte) [][]benchmark {
	var lists [][]benchmark
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		var list []benchmark
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				list = append(list, benchmark{name: name, unit: fields[i+1], value: value})
			}
		}
		if len(list) > 0 {
			lists = append(lists, list)
		}
	}
	return lists
}
